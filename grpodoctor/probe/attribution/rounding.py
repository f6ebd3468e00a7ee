"""What rounding alone does to a model: the gap that it causes, and the experts that it flips.

In a mixture of experts, a few tokens whose router is nearly undecided are routed to other experts,
and carry most of the gap. The mean over all tokens then depends on how far these few tokens happen
to move. So flips are counted and measured apart from the tokens whose experts agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from grpodoctor.probe.attribution.tokens import Flags, Floats, Tokens, steady
from grpodoctor.probe.severity import EXACT, QUIET

if TYPE_CHECKING:
    from grpodoctor.probe.inputs.engine_spec import EngineSpec

COARSE = {"bfloat16": 3, "float16": 2, "float32": 1}
"""Rank of each precision; a higher rank is coarser."""
USUAL_NOISE = {"bfloat16": 5e-4, "float16": 1e-5}
"""Assumed k3 of rounding if the learner cannot measure it: ten times the value of healthy engines
on the tiny models of `python -m tests.benchmarks attribution`, because larger models round more."""
_MORE = math.sqrt(QUIET)
"""Factor by which rounding may flip more experts in a pair than in the learner. k3 goes with the
square of an error. The margins of routers near zero are equally common, so flips go with the error
itself."""
_ERRORS = 3.0
"""Standard errors over responses, from which an excess is no chance."""
_CHANCE = float(stats.norm.sf(_ERRORS))
_COVERED = 0.9
"""Smallest share of tokens with known experts."""
_AGREEING = 0.5
"""Smallest share of tokens whose experts agree. Flips of most tokens are not rare, so the mean over
all tokens does not depend on a few of them."""


@dataclass(frozen=True, slots=True)
class RoundingFlips:
    """Flips that rounding explains: as many, and as large, as in the learner alone.

    A flip changes what the rest of its response attends to, so the rest is left out, too.
    """

    share: float
    """Share of the tokens that are routed to different experts in the pair."""
    own_share: float
    """The same in the learner, between float32 and the coarser precision."""
    gap: float
    """k3 of the pair at tokens before the first flip of their response."""
    noise: float
    """k3 of the learner's rounding, at tokens before the first flip of its rounding pair."""
    steady_N: Flags
    """Tokens of the pair before the first flip of their response."""


@dataclass(frozen=True)
class Rounding:
    """The difference between the learner in float32 and in the coarser precision."""

    noise: float
    """k3, in nats per token."""
    own: Tokens | None = None
    """The tokens with float32 as learner and the coarser precision as sampler; None if the
    learner's experts are unknown."""
    is_usual: bool = False
    """Whether it is the usual value of the precision, not a measurement."""

    def flips_in(self, tokens: Tokens) -> RoundingFlips | None:
        """The flips of a pair if rounding explains them, else None.

        None also if the experts of one side are unknown, or if no token or most tokens flip.
        """
        own = self.own
        if own is None or not _is_comparable(tokens, own):
            return None
        own = own.where(tokens.finite_N & tokens.routed_N)
        tokens = tokens.where(own.finite_N)
        share = float(tokens.flipped_N[tokens.finite_N].mean()) if tokens.any else 0.0
        if not 0 < share <= 1 - _AGREEING:
            return None
        if are_more(tokens, own) or are_larger(tokens, own):
            return None
        steady_N, own_steady_N = steady(tokens), steady(own)
        if not (steady_N & tokens.finite_N).any() or not (own_steady_N & own.finite_N).any():
            return None
        return RoundingFlips(
            share=share,
            own_share=float(own.flipped_N[own.finite_N].mean()),
            gap=tokens.mean_at(steady_N),
            noise=max(own.mean_at(own_steady_N), EXACT),
            steady_N=steady_N & tokens.finite_N,
        )

    def excess_flips(self, tokens: Tokens) -> str:
        """A sentence about more flips than rounding explains; empty if there are none."""
        if self.own is None or not _is_comparable(tokens, self.own):
            return ""
        own = self.own.where(tokens.finite_N & tokens.routed_N)
        if not are_more(tokens, own):
            return ""
        shares = (each.flipped_N[each.finite_N].mean() for each in (tokens, own))
        pair_share, own_share = map(float, shares)
        return (
            f"{pair_share:.2%} of the tokens are routed to different experts, more than rounding "
            f"explains ({own_share:.2%}): compare the weights and the precision of the routers"
        )

    def remains_without_flips(self, tokens: Tokens) -> bool:
        """Whether rounding explains the flips of a pair and the gap of the other tokens."""
        flips = self.flips_in(tokens)
        return flips is not None and flips.gap <= QUIET * flips.noise

    def without_routes(self) -> Rounding:
        """For a pair whose flips are unknown: the most that those of the learner account for.

        Rounding may flip `_MORE` times as many tokens in the pair. What they and the rest of their
        responses carry varies with the number and size of flips, as the learner's responses show.
        """
        own = self.own
        if own is None or not own.any:
            return self
        flips_B = np.bincount(
            own.rows_N, own.terms_N * ~steady(own), minlength=own.lengths_B.size
        ) / int(own.finite_N.sum())
        error = float(flips_B.std() * np.sqrt(flips_B.size))
        before_flips = self.noise - float(flips_B.sum())
        # The variance of the pair's flips, and that of the estimate from the learner.
        chance = _ERRORS * error * math.sqrt(_MORE + _MORE**2)
        most = QUIET * before_flips + _MORE * float(flips_B.sum()) + chance
        return replace(self, noise=max(self.noise, most / QUIET))


def _is_comparable(tokens: Tokens, own: Tokens) -> bool:
    """Whether both have experts, of the same tokens."""
    if tokens.ids_N is None or own.ids_N is None:
        return False
    if not np.array_equal(tokens.ids_N, own.ids_N):
        return False
    return bool(min(tokens.routed_N.mean(), own.routed_N.mean()) >= _COVERED)


def are_more(tokens: Tokens, own: Tokens) -> bool:
    """Whether more tokens flip than by rounding, by more than chance among responses.

    A flip changes what later tokens attend to, so the tokens of a response depend on each other.
    """
    excess_B = _by_response(tokens, tokens.flipped_N) - _MORE * _by_response(own, own.flipped_N)
    return bool(excess_B.sum() > _ERRORS * excess_B.std() * np.sqrt(excess_B.size))


def are_larger(tokens: Tokens, own: Tokens) -> bool:
    """Whether flips carry more than `QUIET` times what they do by rounding, by more than chance.

    A flipped expert changes the result by as much as the two experts differ, and what later tokens
    attend to, so that few flips can carry most of the sum. Ranks do not depend on these few. The
    flipped tokens and the tokens after the first flip are compared, in means of each response.
    """
    later_N, own_later_N = (~each.flipped_N & ~steady(each) for each in (tokens, own))
    return _exceed(
        _response_means(tokens, tokens.flipped_N), _response_means(own, own.flipped_N)
    ) or _exceed(_response_means(tokens, later_N), _response_means(own, own_later_N))


def _exceed(mine: Floats, owns: Floats) -> bool:
    if not mine.size:
        return False
    if not owns.size:  # there is nothing that rounding could account for
        return True
    test = stats.mannwhitneyu(mine, QUIET * owns, alternative="greater")
    return bool(test.pvalue < _CHANCE)


def _response_means(tokens: Tokens, at_N: Flags) -> Floats:
    """Mean k3 of some tokens of each response that has any."""
    at = at_N & tokens.finite_N
    counts_B = _by_response(tokens, at)
    sums_B = np.bincount(tokens.rows_N, tokens.terms_N * at, minlength=counts_B.size)
    return np.asarray(sums_B[counts_B > 0] / counts_B[counts_B > 0])


def _by_response(tokens: Tokens, at_N: Flags) -> Floats:
    """Number of such tokens that count, by response."""
    counts_B = np.bincount(tokens.rows_N[at_N & tokens.finite_N], minlength=tokens.lengths_B.size)
    return counts_B.astype(np.float64)


def coarser_of(*dtypes: str) -> str:
    """The coarsest precision; bfloat16, the most common one, where none is reported.

    float64 counts as float32, the precision in which log-probabilities are stored.
    """
    stored = ["float32" if dtype == "float64" else dtype for dtype in dtypes]
    known = [dtype if dtype in COARSE else "bfloat16" for dtype in stored]
    return max(known, key=lambda dtype: COARSE[dtype])


def usual_rounding(dtype: str) -> Rounding:
    """The rounding of a precision in other models; in float32, every model's."""
    if dtype == "float32":
        return Rounding(EXACT)
    return Rounding(USUAL_NOISE[dtype], is_usual=True)


def rounding_between(exact: Tokens, rounded: Tokens) -> Rounding:
    """The rounding that the learner shows between two scorings of the same tokens."""
    own = exact.with_sampler(rounded.learner_N, rounded.learner_experts_NLK)
    is_routed = exact.learner_experts_NLK is not None and rounded.learner_experts_NLK is not None
    return Rounding(max(own.gap, EXACT), own if is_routed else None)


def of_steps(noise: float, whole: float) -> Rounding:
    """What is left if both sides round values of the computation to the same steps.

    Rounding to steps of size s has the mean square s^2 / 12. An error e of the kernels moves a
    value to another step with probability |e| / s, which changes it by s. So the mean square of
    what is left is s E|e|. With normal errors it is sqrt(24 / pi) times the geometric mean of the
    two mean squares, and k3 goes with mean squares.

    Args:
        noise: k3 of the errors of kernels.
        whole: k3 that the rounding to steps causes.
    """
    return Rounding(max(noise, math.sqrt(24 / math.pi * noise * whole)))


def removed_at_agreeing(exact: Tokens, rounded: Tokens) -> float:
    """Share of the gap that another precision of the learner removes, apart from flips.

    Args:
        exact: the pair before the change.
        rounded: the same tokens with the learner in the other precision.

    Returns:
        The share at tokens that all three scorings route to the same experts; 0 if rounding does
        not explain the flips that remain, or if experts are unknown.
    """
    rounding = rounding_between(exact, rounded)
    own = rounding.own
    if own is None or rounding.flips_in(rounded) is None:
        return 0.0
    agreeing_N = ~own.flipped_N & ~exact.flipped_N & ~rounded.flipped_N
    whole = exact.mean_at(agreeing_N)
    return 1 - rounded.mean_at(agreeing_N) / whole if whole > 0 else 0.0


def in_precision(engine: EngineSpec, dtype: str) -> EngineSpec:
    """The same engine with all computation in another precision."""
    autocast = {"autocast": None} if "autocast" in engine.options else {}
    return engine.with_options(dtype=dtype, **autocast)
