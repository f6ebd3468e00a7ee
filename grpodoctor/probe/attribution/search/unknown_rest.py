"""Whether a gap contains the effect of a known edit, next to a rest that nothing explains.

Shape suffixes: N tokens, B responses, C controls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr

from grpodoctor.probe.attribution.tokens import Flags, Floats, Integers, Tokens

CHANCE = 1e-4
"""Probability that any of the tried edits is accepted where none acts."""
_CLIP = 3.0
"""Upper bound on |Δlogp| per token."""
_LEAST_SHARE = 0.1
"""Share of the variance of a gap that an edit must explain."""
_ERRORS = 3.0
"""Standard errors by which the fitted size of an effect may differ from the predicted one."""
_ABOUT = 0.25
"""The same as a share of the size: the effect is that in the learner, whose model differs."""
_MOST_OFF = 0.6
"""The largest such share, however few the responses are."""


@dataclass(frozen=True)
class Part:
    """An edit's effect as a part of a gap: `gap = size · effect + rest`.

    The rest is noise with a mean per token that is linear in the controls, and it is independent
    between responses only. What a token's own probability, its logarithm and the entropy predict is
    projected out: any two models differ most in unlikely tokens.
    """

    gap_N: Floats
    """The gap without what the controls predict."""
    effect_N: Floats
    """The predicted effect of the edit, without it."""
    rows_N: Integers
    """Response of each token."""
    halves_N: Integers
    """0 or 1, equal for all tokens of a prompt."""

    @cached_property
    def size(self) -> float:
        """The fitted multiple of the effect; 1 if the edit is right."""
        whole = float(self.effect_N @ self.effect_N)
        return float(self.effect_N @ self.gap_N) / whole if whole > 0 else 0.0

    @cached_property
    def z(self) -> float:
        """The effect in standard errors, with random signs of the responses if there is none.

        A sum divided by the root of its sum of squares exceeds a bound as rarely as a normal
        number, for any number of responses.
        """
        terms_B = np.bincount(self.rows_N, self.effect_N * self.gap_N)
        root = math.sqrt(float(terms_B @ terms_B))
        return float(terms_B.sum()) / root if root > 0 else 0.0

    @cached_property
    def error(self) -> float:
        """Standard error of the size, clustered by response."""
        whole = float(self.effect_N @ self.effect_N)
        rest_N = self.gap_N - self.size * self.effect_N
        terms_B = np.bincount(self.rows_N, self.effect_N * rest_N)
        return math.sqrt(float(terms_B @ terms_B)) / whole if whole > 0 else math.inf

    @cached_property
    def share(self) -> float:
        """Share of the gap's variance that the effect explains in its predicted size."""
        whole = float(self.gap_N @ self.gap_N)
        return self._gain(np.ones(self.gap_N.size, np.bool_)) / whole if whole > 0 else 0.0

    def gain_in(self, half: int) -> float:
        """Fall of the sum of squares in one half of the prompts, in the predicted size."""
        return self._gain(self.halves_N == half)

    def _gain(self, at_N: Flags) -> float:
        rest_N = (self.gap_N - self.effect_N)[at_N]
        return float(self.gap_N[at_N] @ self.gap_N[at_N] - rest_N @ rest_N)

    def is_accepted(self, tried: int) -> bool:
        """Whether the effect is there, in its predicted size, in both halves of the prompts.

        Args:
            tried: number of edits among which it was chosen.
        """
        # Two-sided; the logarithm does not underflow.
        by_chance = math.log(2 * max(tried, 1)) + float(log_ndtr(-abs(self.z)))
        off = min(max(_ERRORS * self.error, _ABOUT), _MOST_OFF)
        return (
            self.z > 0
            and by_chance < math.log(CHANCE)
            and abs(self.size - 1) <= off
            and self.share >= _LEAST_SHARE
            and min(self.gain_in(0), self.gain_in(1)) > 0
        )


def part_of(tokens: Tokens, effect_N: Floats) -> Part | None:
    """An edit's effect as a part of the sampler's values minus the learner's; None without tokens.

    Args:
        tokens: of the gap.
        effect_N: the learner's log-probabilities with the edit, minus those without.
    """
    at_N = tokens.finite_N & np.isfinite(effect_N) & np.isfinite(tokens.learner_N)
    controls_NC = _controls(tokens)
    at_N &= np.isfinite(controls_NC).all(axis=1)
    if at_N.sum() <= 4 * controls_NC.shape[1]:
        return None
    both_N2 = np.stack([-tokens.difference_N[at_N], effect_N[at_N]], axis=1)
    both_N2 = np.clip(both_N2, -_CLIP, _CLIP)
    basis_NC, _ = np.linalg.qr(controls_NC[at_N])
    both_N2 = both_N2 - basis_NC @ (basis_NC.T @ both_N2)
    rows_N = tokens.rows_N[at_N]
    return Part(both_N2[:, 0], both_N2[:, 1], rows_N, tokens.prompt_B[rows_N] % 2)


def _controls(tokens: Tokens) -> Floats:
    """What moves tokens by their own probability, shape (N, C)."""
    own_N = tokens.learner_N
    known = [np.ones(own_N.size), own_N, np.exp(own_N)]
    known += [] if tokens.surplus_N is None else [tokens.surplus_N - own_N]
    return np.stack(known, axis=1)
