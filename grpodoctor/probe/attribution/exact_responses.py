"""Responses that an experiment makes equal, whatever it does to the others.

A second fault often leaves some responses alone: it concerns some prompts, long responses, or those
that contain a token twice. The right change makes these responses equal to rounding, although most
of the mean gap may remain in the others. A wrong change makes hardly any response equal, because
each of its tokens would have to agree by chance.

Shape suffixes: N tokens, B responses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from grpodoctor.probe.attribution.tokens import (
    TYPICAL,
    Flags,
    Floats,
    Tokens,
    typical_share,
)

_PART = 0.2
"""Smallest share of the differing tokens that the responses must have together: a search tries
edits on a dozen responses, and must see more than one of them."""
_FEWEST, _FEWEST_PROMPTS = 3, 2
"""Responses of a part, and prompts that they must follow: responses of a prompt resemble each
other."""
_CHANCE = 1e-4
"""Probability that a wrong change passes."""
_WIDE = 4.0
"""Multiple of the rounding of a log-probability up to which the density of differences is
measured."""
_ENOUGH = 50
"""Tokens from which a share of them is known well enough."""


@dataclass(frozen=True, slots=True)
class ExactResponses:
    """The responses that differed before an experiment and are equal to rounding after it."""

    exact_B: Flags
    differed: int
    """Responses that differed before."""
    nats: float
    """Negative logarithm of the probability of as many by chance, for one wrong change."""

    @property
    def words(self) -> str:
        """The numbers as a phrase."""
        return f"{int(self.exact_B.sum())} of {self.differed} responses that differed"


@dataclass(frozen=True, slots=True)
class _Counts:
    """What an experiment does to each response."""

    before_B: Floats
    """k3, summed over the tokens that are finite on both sides before and after."""
    after_B: Floats
    tokens_B: Floats
    differing_B: Floats
    """Tokens whose own k3 exceeded rounding before."""
    differing_N: Flags

    @classmethod
    def of(cls, before: Tokens, after: Tokens, limit: float) -> _Counts:
        at_N = before.finite_N & after.finite_N
        differing_N = at_N & (before.terms_N > limit)
        rows_N, count = before.rows_N, before.lengths_B.size

        def by_response(values_N: Floats | Flags) -> Floats:
            return np.bincount(rows_N, values_N, minlength=count).astype(np.float64)

        return cls(
            by_response(np.where(at_N, before.terms_N, 0.0)),
            by_response(np.where(at_N, after.terms_N, 0.0)),
            by_response(at_N),
            by_response(differing_N),
            differing_N,
        )

    def differed_B(self, limit: float) -> Flags:
        """Responses whose gap exceeded rounding before."""
        return np.asarray((self.before_B > limit * self.tokens_B) & (self.differing_B > 0))


def exact_responses(
    before: Tokens, after: Tokens, limit: float, tries: int = 1
) -> ExactResponses | None:
    """The responses that an experiment makes equal; None if chance explains them, or they are few.

    Args:
        before: the tokens with the gap.
        after: the same tokens under another setup.
        limit: k3 up to which a gap is rounding.
        tries: changes among which this one was chosen.
    """
    counts = _Counts.of(before, after, limit)
    differed_B = counts.differed_B(limit)
    lost_N = before.finite_N & after.counted_N & ~after.finite_N
    lost_B = np.bincount(before.rows_N, lost_N, minlength=before.lengths_B.size) > 0
    exact_B = differed_B & (counts.after_B <= limit * counts.tokens_B) & ~lost_B
    if exact_B.sum() < _FEWEST or np.unique(before.prompt_B[exact_B]).size < _FEWEST_PROMPTS:
        return None
    whole, part = (float(counts.differing_B[at].sum()) for at in (differed_B, exact_B))
    # A gap near rounding that falls a little in all responses makes some of them exact, too.
    is_gone = counts.after_B[exact_B].sum() <= (1 - TYPICAL) * counts.before_B[exact_B].sum()
    if part < _PART * whole or not is_gone:
        return None
    by_chance = _token_chance(before, after, limit, counts.differing_N, exact_B)
    expected = float((by_chance ** counts.differing_B[differed_B]).sum())
    nats = _excess_nats(int(exact_B.sum()), expected)
    if nats < math.log(max(tries, 1) / _CHANCE):
        return None
    return ExactResponses(exact_B, int(differed_B.sum()), nats)


def _token_chance(
    before: Tokens, after: Tokens, limit: float, differing_N: Flags, exact_B: Flags
) -> float:
    """Probability that a wrong change makes a differing token equal to rounding.

    The larger one of two estimates: from the density of small differences before the change, and
    from the other responses after it.
    """
    count = int(differing_N.sum())
    near_N = differing_N & (before.terms_N <= _WIDE**2 * limit)
    chance = (near_N.sum() / (_WIDE - 1) + 1) / (count + 2)
    rest_N = differing_N & ~exact_B[before.rows_N]
    if rest_N.sum() >= _ENOUGH:
        closed = int((rest_N & (after.terms_N <= limit)).sum())
        chance = max(chance, (closed + 1) / (int(rest_N.sum()) + 2))
    return float(min(chance, 1.0))


def _excess_nats(count: int, expected: float) -> float:
    """Chernoff's bound on the probability of a count of rare independent events, in nats."""
    if count <= expected:
        return 0.0
    return count * math.log(count / expected) - count + expected


def part_share(before: Tokens, after: Tokens, limit: float) -> float:
    """Share of the gap that disappeared in the fifth of the responses where it fell most.

    Responses count by their tokens that differed before. Below 0.98 this says little, because some
    responses always fit better than others.

    Args:
        before: the tokens with the gap.
        after: the same tokens under another setup.
        limit: k3 up to which a gap is rounding.
    """
    counts = _Counts.of(before, after, limit)
    differed_B = counts.differed_B(limit)
    if differed_B.sum() < 2 * _FEWEST:  # else they are no part
        return 0.0
    left_B = counts.after_B[differed_B] / counts.before_B[differed_B]
    order = np.argsort(left_B, kind="stable")
    covered_B = np.cumsum(counts.differing_B[differed_B][order])
    last = int(np.searchsorted(covered_B, _PART * covered_B[-1]))
    return float(1 - left_B[order[max(last, _FEWEST - 1)]])


def closed_responses(before: Tokens, after: Tokens, limit: float) -> Flags:
    """The responses of which an experiment removed nearly all of a gap above rounding."""
    counts = _Counts.of(before, after, limit)
    most_B = np.maximum((1 - TYPICAL) * counts.before_B, limit * counts.tokens_B)
    return np.asarray(counts.differed_B(limit) & (counts.after_B <= most_B))


def closed_share(before: Tokens, after: Tokens, limit: float) -> float:
    """The larger share of the gap that disappeared: of the typical token, or of some responses."""
    return max(typical_share(before, after, limit), part_share(before, after, limit))


def effective_gap(before: Tokens, after: Tokens, limit: float) -> float:
    """The gap after an experiment by which several are compared.

    If it removed nearly all of the typical token's gap, or of the gap of some responses, that share
    counts: the tokens of a second fault, which carry most of the mean, may favor another setup.

    Args:
        before: the tokens before the experiments.
        after: the tokens under one of them.
        limit: as for `typical_share`.
    """
    closed = closed_share(before, after, limit)
    return min(after.gap, before.gap * (1 - closed)) if closed >= TYPICAL else after.gap
