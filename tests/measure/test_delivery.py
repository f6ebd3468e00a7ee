"""Shares of a change in a gap: planted values, noise of any tail, tokens that cannot decide."""

from __future__ import annotations

import numpy as np
import pytest

from grpodoctor.measure.weights.delivery import Tokens, missing_parts, shares_of, unexplained

SHAPE = (8, 256)


def drawn(seed: int, scale: float) -> np.ndarray:
    """Heavy tails, and neighbours that are alike."""
    noise = scale * np.random.default_rng(seed).standard_t(3, SHAPE)
    return noise + 0.5 * np.roll(noise, 1, axis=1)


def all_tokens() -> Tokens:
    return Tokens.of(np.ones(SHAPE, bool))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_planted_share_is_found_below_the_noise(share: float) -> None:
    change = drawn(1, 0.01)
    (found,) = shares_of(all_tokens(), share * change + drawn(2, 0.02), [change]) or []
    assert found.low < share < found.high
    assert found.value == pytest.approx(share, abs=5 * found.error)
    assert (found.low > 0) == (share > 0)


@pytest.mark.slow
def test_a_delivered_sync_rarely_seems_undelivered() -> None:
    """The bound holds for one check in 10,000; among 2,000, more than 3 would be a wrong error."""
    seeds = range(1, 2001)
    found = [
        shares_of(all_tokens(), drawn(seed, 0.02), [drawn(-seed % 9999, 0.01)]) for seed in seeds
    ]
    assert sum(each is not None and each[0].low > 0 for each in found) <= 3


def test_an_anchor_removes_what_an_engine_always_shows() -> None:
    change = drawn(1, 0.01)
    (anchor,) = shares_of(all_tokens(), 0.5 * change + drawn(2, 0.02), [change]) or []
    other = drawn(3, 0.01)
    (biased,) = shares_of(all_tokens(), 0.5 * other + drawn(4, 0.02), [other]) or []
    assert biased.low > 0
    assert biased.minus(anchor).low < 0


def test_nothing_is_found_without_a_change() -> None:
    none = np.zeros(SHAPE)
    assert shares_of(all_tokens(), drawn(1, 1), [none]) is None
    assert shares_of(all_tokens(), drawn(1, 1), [drawn(2, 1), drawn(2, 1)]) is None
    assert shares_of(Tokens.of(np.zeros(SHAPE, bool)), drawn(1, 1), [drawn(2, 1)]) is None


def test_values_that_are_not_finite_are_left_out() -> None:
    gap, change = drawn(1, 0.02), drawn(2, 0.01)
    gap[0, :3] = [np.nan, np.inf, -np.inf]
    tokens = Tokens.of(np.ones(SHAPE, bool), gap, change)
    assert tokens.keep_RT.sum() == gap.size - 3
    assert np.isfinite(shares_of(tokens, gap, [change])[0].value)
    assert np.isfinite(unexplained(tokens, gap, [change]))


def test_the_right_part_is_named() -> None:
    layers = {f"layer {number}": drawn(number, 0.01) for number in range(1, 5)}
    whole = sum(layers.values())
    kinds = {"q_proj": 0.3 * whole + drawn(11, 0.005), "v_proj": 0.7 * whole - drawn(11, 0.005)}
    noise = drawn(20, 0.01)
    found = missing_parts(all_tokens(), layers["layer 2"] + noise, whole, [kinds, layers])
    assert found == (1, ("layer 2",))
    found = missing_parts(all_tokens(), whole - layers["layer 3"] + noise, whole, [kinds, layers])
    assert set(found.names) == {"layer 1", "layer 2", "layer 4"}
    assert missing_parts(all_tokens(), whole + noise, whole, [kinds, layers]) is None
    assert missing_parts(all_tokens(), noise, whole, [kinds, layers]) is None
