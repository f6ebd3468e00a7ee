"""Where in a response, and on which tokens, two policies differ: from some responses of a dump.

A live run sorts every token by its position and by its probability. Of a dump that costs as much as
all its other figures, so that of each step a few responses are drawn, by what they hold: the same
ones however the dump was cut, and whoever reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.mismatch import BUCKETS, POSITION_EDGES, PROBABILITY_EDGES
from grpodoctor.measure.ragged import Ragged
from grpodoctor.measure.sample import drawn, lots_of
from grpodoctor.vocabulary.values import Mean, Reading

DRAWN = 16
"""Responses of a step that are sorted: the mean's error is a quarter of their spread."""

_NOWHERE = len(PROBABILITY_EDGES) - 1
"""Behind the last bucket of probabilities."""
_DIFFERENCES = ("prob_diff", "logprob_diff")
NAMES = tuple(f"mismatch/{diff}_mean/{bucket}" for diff in _DIFFERENCES for bucket in BUCKETS)
"""What a sorted response has a figure of."""

Sorted = tuple[int, tuple[float, ...]]
"""A response's lot, and its mean in every bucket of `NAMES`; NaN where it has no token there."""


def sort_drawn(
    learner: Ragged, sampler: Ragged, columns: Mapping[str, NDArray[np.generic]]
) -> dict[int, list[Sorted]]:
    """The responses of each step that are drawn, sorted.

    Args:
        learner: log-probabilities of the generated tokens under the learner, in nats.
        sampler: the same under the sampler; as many of each response.
        columns: `step`, and the gaps that `gap_figures` gives.
    """
    lots_B = lots_of(_bits(columns["gap/q"]), _bits(columns["gap/logprob_diff"]) | np.uint64(1))
    lots_B = np.where(columns["gap/tokens"].astype(np.int64) > 0, lots_B, np.uint64(0))
    found: dict[int, list[Sorted]] = {}
    for row in np.flatnonzero(drawn(lots_B, DRAWN, columns["step"])).tolist():
        figures = _figures(learner.row(row), sampler.row(row))
        found.setdefault(int(columns["step"][row]), []).append((int(lots_B[row]), figures))
    return {step: lowest(each) for step, each in found.items()}


def lowest(rows: Sequence[Sorted]) -> list[Sorted]:
    """Those of the lowest lots, in their order."""
    return sorted(rows, key=lambda each: (each[0], repr(each[1])))[:DRAWN]


def sorted_readings(rows: Sequence[Sorted]) -> dict[str, Reading]:
    """The means over the responses that were drawn of a step."""
    readings: dict[str, Reading] = {}
    if rows:
        table = np.array([figures for _, figures in rows])
        for column, name in enumerate(NAMES):
            values = table[:, column]
            known = values[~np.isnan(values)]
            if known.size:
                readings[name] = Mean.of(known)
    return readings


def _bits(values: NDArray[np.generic]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(values, np.float64).view(np.uint64)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _figures(learner_N: NDArray[np.generic], sampler_N: NDArray[np.generic]) -> tuple[float, ...]:
    """A response's mean in every bucket of `NAMES`; a token that is not finite is in none."""
    ours, theirs = learner_N.astype(np.float64), sampler_N.astype(np.float64)
    gaps_N = np.abs(ours - theirs)
    counted_N = np.isfinite(gaps_N)
    p, q = np.exp(ours), np.exp(theirs)
    places_N = np.zeros(q.size, np.intp)
    for edge in PROBABILITY_EDGES[1:-1]:
        places_N += q >= edge
    places_N[~counted_N] = _NOWHERE
    begins = [edge for edge in POSITION_EDGES if edge < q.size]
    means: list[float] = []
    for values_N in (np.abs(p - q), gaps_N):
        kept_N = np.where(counted_N, values_N, 0.0)
        positions = np.full(len(POSITION_EDGES), np.nan)
        counts = np.add.reduceat(counted_N, begins, dtype=np.int64)
        positions[: len(begins)] = np.add.reduceat(kept_N, begins) / counts
        sums = np.bincount(places_N, weights=kept_N, minlength=_NOWHERE + 1)[:_NOWHERE]
        shares = sums / np.bincount(places_N, minlength=_NOWHERE + 1)[:_NOWHERE]
        means += [*positions.tolist(), *shares.tolist()]
    return tuple(means)
