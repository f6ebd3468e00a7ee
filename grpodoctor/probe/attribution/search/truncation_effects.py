"""What truncations do to log-probabilities, from the likeliest tokens of each place.

A truncation divides the probabilities that it keeps by their sum, so it raises each sampled token
by the negative logarithm of the kept mass. The learner returns its likeliest tokens once; all
truncations follow from them without a pass. A token that the learner's own truncation excludes is
raised like the others: next to a second fault the sampler may have kept it.

Shape suffixes: N tokens, M likeliest tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grpodoctor.probe.attribution.tokens import Floats

_TOP_P = tuple(round(0.01 * percent, 2) for percent in range(50, 100))
_MIN_P = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3)
_MOST_K = 16
"""Truncations whose effects are known: masses, shares of the likeliest token, and ranks."""


def truncation_effects(likeliest_NM: Floats) -> Iterator[tuple[str, float, Floats]]:
    """The settings, their values, and what each does to the sampled tokens, shape (N,).

    Args:
        likeliest_NM: log-probabilities of each place's likeliest tokens.
    """
    ordered_NM = -np.sort(-likeliest_NM.astype(np.float64), axis=1)
    mass_NM = np.cumsum(np.exp(ordered_NM), axis=1)
    for count in range(1, min(_MOST_K, ordered_NM.shape[1] - 1) + 1):
        yield "top_k", float(count), _raised(mass_NM[:, count - 1])
    for mass in _TOP_P:
        reached_NM = mass_NM >= mass
        at_N = reached_NM.argmax(axis=1)
        kept_N = mass_NM[np.arange(at_N.size), at_N]
        yield "top_p", mass, _raised(np.where(reached_NM.any(axis=1), kept_N, mass))
    for share in _MIN_P:
        kept_NM = ordered_NM >= ordered_NM[:, :1] + np.log(share)
        kept_N = np.where(kept_NM, np.exp(ordered_NM), 0.0).sum(axis=1)
        # Where all of them are kept, so is an unknown part of the others, which are unlikely.
        yield "min_p", share, _raised(np.where(kept_NM[:, -1], 1.0, kept_N))


def _raised(kept_N: Floats) -> Floats:
    moved_N: Floats = -np.log(np.clip(kept_N, 1e-9, 1.0))
    return moved_N
