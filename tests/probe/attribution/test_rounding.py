"""Flips of experts by rounding are left out of the gap; other flips are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.rounding import Rounding, removed_at_agreeing, rounding_between
from grpodoctor.probe.attribution.tokens import Tokens, steady
from grpodoctor.probe.severity import QUIET

RESPONSES, LENGTH = 120, 80
ERROR = 0.01
"""Standard deviation of Δlogp by rounding alone."""
FLIPS = 0.006
"""Share of tokens that rounding routes to other experts."""


def routed(generator: np.random.Generator, share: float) -> Any:
    """Experts (N, 1, 2) of which a share of tokens has another second expert."""
    count = RESPONSES * LENGTH
    experts_NLK = np.tile(np.array([[[0, 1]]], np.int16), (count, 1, 1))
    experts_NLK[generator.random(count) < share, 0, 1] = 2
    return experts_NLK


def pair(
    seed: int, *, error: float = ERROR, share: float = FLIPS, size: float = 0.1, tail: float = 1.5
) -> Tokens:
    """A pair whose flips carry a heavy-tailed difference.

    Args:
        seed: of all numbers.
        error: standard deviation of Δlogp at tokens with the same experts.
        share: of the tokens that flip.
        size: median |Δlogp| of a flip.
        tail: standard deviation of its logarithm.
    """
    generator = np.random.default_rng(seed)
    count = RESPONSES * LENGTH
    experts_NLK = routed(generator, share)
    flipped_N = experts_NLK[:, 0, 1] == 2
    sign_N = generator.choice([-1.0, 1.0], size=count)
    far_N = size * sign_N * np.exp(tail * generator.standard_normal(count))
    learner_N = np.full(count, -1.0)
    moved_N = np.where(flipped_N, far_N, error * generator.standard_normal(count))
    nothing_B = np.zeros(RESPONSES, np.int64)
    return Tokens(
        sampler_N=learner_N + moved_N,
        learner_N=learner_N,
        lengths_B=np.full(RESPONSES, LENGTH),
        prompt_B=nothing_B,
        sample_B=nothing_B,
        prompt_lengths_B=nothing_B,
        ended_B=np.zeros(RESPONSES, np.bool_),
        cached_B=nothing_B,
        sampler_experts_NLK=experts_NLK,
        learner_experts_NLK=routed(generator, 0.0),
        counted_N=np.ones(count, np.bool_),
        ids_N=np.arange(count),
    )


def rounding(seed: int = 1000, **options: float) -> Rounding:
    own = pair(seed, **options)
    return Rounding(own.gap, own)


def test_flips_of_healthy_pairs_are_left_out_however_heavy_their_tail() -> None:
    loud = 0
    for seed in range(60):
        own, healthy = rounding(1000 + seed, tail=2.0), pair(seed, tail=2.0)
        loud += healthy.gap > QUIET * own.noise
        flips = own.flips_in(healthy)
        assert flips is not None
        assert flips.gap == pytest.approx(ERROR**2 / 2, rel=0.1)
        assert flips.noise == pytest.approx(ERROR**2 / 2, rel=0.1)
        assert not flips.steady_N[healthy.flipped_N].any()
        assert own.remains_without_flips(healthy)
    assert loud >= 3  # the mean over all tokens alone would have been an alarm


@pytest.mark.parametrize(
    ("fault", "is_left_out"),
    [
        ({"share": 1.7 * FLIPS}, True),
        ({"share": 4 * FLIPS}, False),
        ({"size": 0.15}, True),
        ({"size": 1.0}, False),
    ],
)
def test_more_or_larger_flips_are_not_rounding(fault: dict[str, float], is_left_out: bool) -> None:
    for seed in range(10):
        assert (rounding(500 + seed).flips_in(pair(seed, **fault)) is not None) == is_left_out


def test_more_flips_are_noted_whatever_their_gap() -> None:
    own = rounding()
    noted = own.excess_flips(pair(1, share=5 * FLIPS, size=ERROR))
    assert noted.startswith("2.8")
    assert "more than rounding explains (0." in noted
    assert own.excess_flips(pair(1)) == ""
    assert Rounding(own.noise).excess_flips(pair(1, share=5 * FLIPS)) == ""


def test_a_gap_before_the_first_flip_is_no_rounding() -> None:
    own, sick = rounding(), pair(1, error=2.2 * ERROR)
    assert not own.remains_without_flips(sick)
    assert own.remains_without_flips(pair(1, error=1.5 * ERROR))


def test_a_gap_after_flips_is_left_out_if_few_responses_have_it() -> None:
    """What later tokens attend to has changed, in some responses by far."""
    own, healthy = rounding(), pair(1)
    later_N = ~steady(healthy) & ~healthy.flipped_N
    few_N = later_N & (healthy.rows_N % 10 == 0)
    assert few_N.any()
    for at_N, is_left_out in ((few_N, True), (later_N, False)):
        moved_N = np.where(at_N, 0.2, healthy.difference_N)
        changed = healthy.with_learner(healthy.sampler_N + moved_N, healthy.learner_experts_NLK)
        assert changed.gap > QUIET * own.noise
        assert own.remains_without_flips(changed) == is_left_out


def test_the_tokens_of_a_response_are_no_independent_flips() -> None:
    """Twenty flips of one response are one event; of twenty responses they are not."""
    own = rounding(share=0.0)
    one, many = (pair(2, share=0.0) for _ in range(2))
    at = {"one": np.arange(20), "many": np.arange(20) * LENGTH}
    for tokens, where in ((one, at["one"]), (many, at["many"])):
        assert tokens.sampler_experts_NLK is not None
        tokens.sampler_experts_NLK[where, 0, 1] = 2
    with_one_own = Rounding(own.noise, _with_flip(own))
    assert with_one_own.flips_in(one) is not None
    assert with_one_own.flips_in(many) is None


def _with_flip(own: Rounding) -> Tokens:
    """The learner's tokens with one flip, so that there is something to compare with."""
    tokens = own.own
    assert tokens is not None
    assert tokens.sampler_experts_NLK is not None
    experts_NLK = tokens.sampler_experts_NLK.copy()
    experts_NLK[-LENGTH // 2, 0, 1] = 2
    return replace(tokens, sampler_experts_NLK=experts_NLK)


def test_nothing_is_left_out_of_an_unknown_routing() -> None:
    own, healthy = rounding(), pair(1)
    assert own.flips_in(replace(healthy, learner_experts_NLK=None)) is None
    assert own.flips_in(replace(healthy, ids_N=np.arange(RESPONSES * LENGTH) + 1)) is None
    assert Rounding(own.noise).flips_in(healthy) is None
    assert own.flips_in(pair(1, share=0.0)) is None
    assert own.flips_in(pair(1, share=0.7)) is None


def test_without_routes_the_learner_bounds_what_flips_may_carry() -> None:
    alarms = plain = 0
    for seed in range(60):
        own, healthy = rounding(1000 + seed, tail=2.0), pair(seed, tail=2.0)
        bound = own.without_routes()
        assert bound.noise >= own.noise
        plain += healthy.gap > QUIET * own.noise
        alarms += healthy.gap > QUIET * bound.noise
    assert alarms < plain
    assert Rounding(1e-4).without_routes().noise == 1e-4
    # Many flips of one size leave nothing to chance.
    steady = rounding(share=0.2, tail=0.0)
    assert steady.without_routes().noise == steady.noise


def test_a_precision_is_judged_by_tokens_with_the_same_experts() -> None:
    """The coarser learner fits the sampler where both choose the same experts."""
    exact, rounded = pair(1), pair(1)
    generator = np.random.default_rng(5)
    noise_N = 0.2 * ERROR * generator.standard_normal(RESPONSES * LENGTH)
    experts_NLK = routed(generator, FLIPS)
    flipped_N = experts_NLK[:, 0, 1] == 2
    learner_N = exact.sampler_N + np.where(flipped_N, 0.5, noise_N)
    rounded = rounded.with_learner(np.where(exact.flipped_N, -1.0, learner_N), experts_NLK)
    assert 1 - rounded.gap / exact.gap < 0.5
    assert removed_at_agreeing(exact, rounded) > 0.9
    assert removed_at_agreeing(exact, rounded.with_learner(learner_N)) == 0
    wild = routed(generator, 0.3)  # a fault of the router flips more than a precision
    assert removed_at_agreeing(replace(exact, sampler_experts_NLK=wild), replace(
        rounded, sampler_experts_NLK=wild
    )) == 0  # fmt: skip
    assert rounding_between(exact, rounded).own is not None
