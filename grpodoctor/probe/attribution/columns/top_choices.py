"""Which of the likeliest tokens a rule excludes, and what this does to the sampled ones.

Shape suffixes: N tokens, M likeliest tokens of each place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpodoctor.probe.attribution.tokens import Flags, Floats, Tokens
from grpodoctor.support.numbers import rounded_down

MOST_EXCLUDED = 5
"""Numbers of likeliest tokens of which each is tried as a rule of its own."""
_USUAL = (0.05, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)
_RARE = (0.0, 0.01, 0.05)
"""Quantiles of the bounds on a threshold: rounding moves a few tokens over it."""
_DIGITS = (2, 3, 4)
_TELLS = 1e-3
"""Smallest |Δlogp| of a differing token."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What a rule does at the places where it can act."""

    raised_N: Floats
    """How much a sampled token's log-probability rises; NaN where the rule cannot act, or would
    exclude the sampled token."""
    can_act_N: Flags
    """Places where the rule excludes any token."""

    def acts_N(self, tokens: Tokens) -> Flags:
        """Places where the sampler's value is nearer to that under the rule than to the plain one.

        A sampler applies such a rule at random, so every place has two possible values.
        """
        missing_N = -tokens.difference_N
        at_N = tokens.finite_N & np.isfinite(self.raised_N)
        with np.errstate(invalid="ignore"):
            return np.asarray(at_N & (np.abs(missing_N - self.raised_N) < np.abs(missing_N)))

    def added_N(self, tokens: Tokens) -> Floats:
        """What the rule adds to the learner's log-probabilities where it acts; 0 elsewhere."""
        return np.where(self.acts_N(tokens), np.nan_to_num(self.raised_N), 0.0)


def above_threshold(tokens: Tokens, threshold: float) -> Exclusion | None:
    """XTC: of the tokens of at least this probability, all but the least likely are excluded.

    None without the learner's likeliest tokens.
    """
    if tokens.likeliest_logprob_NM is None or tokens.rank_N is None:
        return None
    count_N = (tokens.likeliest_logprob_NM >= np.log(threshold)).sum(axis=1)
    # A row that is full may have further tokens above the threshold.
    count_N[count_N == tokens.likeliest_logprob_NM.shape[1]] = 0
    return _without_first(tokens, count_N - 1)


def first_choices(tokens: Tokens, count: int) -> Exclusion | None:
    """The likeliest tokens are excluded, the same number at each place; None as above."""
    if tokens.likeliest_logprob_NM is None or tokens.rank_N is None:
        return None
    if count >= tokens.likeliest_logprob_NM.shape[1]:
        return None
    return _without_first(tokens, np.full(tokens.rank_N.size, count))


def _without_first(tokens: Tokens, excluded_N: np.ndarray) -> Exclusion | None:
    if tokens.likeliest_logprob_NM is None or tokens.rank_N is None:
        return None
    can_act_N = excluded_N > 0
    mass_NM = np.exp(tokens.likeliest_logprob_NM.astype(np.float64)).cumsum(axis=1)
    last_N = np.maximum(excluded_N - 1, 0)
    mass_N = np.take_along_axis(mass_NM, last_N[:, None], axis=1)[:, 0]
    is_kept_N = can_act_N & (tokens.rank_N >= excluded_N) & (mass_N < 1)
    raised_N = np.where(is_kept_N, -np.log1p(-np.minimum(mass_N, 1 - 1e-9)), np.nan)
    return Exclusion(raised_N, np.asarray(can_act_N))


def thresholds(tokens: Tokens) -> list[float]:
    """Thresholds of XTC that the differing tokens suggest.

    At each of them, the number of likeliest tokens whose mass is missing bounds the threshold, as
    the next token is above it. Next to rounding a round number may fit better.
    """
    if tokens.likeliest_logprob_NM is None:
        return []
    at_N = tokens.finite_N & (tokens.difference_N < -_TELLS)
    probs_NM = np.exp(tokens.likeliest_logprob_NM[at_N].astype(np.float64))
    if not at_N.any() or probs_NM.shape[1] < 3:
        return []
    mass_NM = probs_NM.cumsum(axis=1)[:, :-2]
    missing_N1 = -np.expm1(tokens.difference_N[at_N])[:, None]
    excluded_N1 = np.abs(mass_NM - missing_N1).argmin(axis=1)[:, None] + 1
    above_N = np.take_along_axis(probs_NM, excluded_N1, axis=1)[:, 0]
    found = list(_USUAL)
    for rare in _RARE:
        high = float(np.quantile(above_N, rare))
        found += [value for digits in _DIGITS if (value := rounded_down(high, digits)) > 0]
    return list(dict.fromkeys(each for each in found if each <= 0.5))
