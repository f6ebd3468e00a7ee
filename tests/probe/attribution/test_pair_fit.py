"""Two changes are found by the sum of their effects."""

from __future__ import annotations

import numpy as np

from grpodoctor.probe.attribution.search.pair_fit import Effect, pairs_of

TOKENS = 300
RANDOM = np.random.default_rng(1)
OTHERS = [RANDOM.normal(size=TOKENS) / 3 for _ in range(300)]
FIRST, SECOND, ERROR = (RANDOM.normal(size=TOKENS) / 3 for _ in range(3))
GAP = FIRST + 0.6 * SECOND + 0.2 * ERROR


def as_computed(moved_N: np.ndarray, **changes: object) -> Effect:
    return Effect(moved_N, 0.5, 1.6, **changes)  # type: ignore[arg-type]


def number(moved_N: np.ndarray) -> Effect:
    return Effect(moved_N, 0.05, 20.0)


def test_the_right_pair_comes_first_with_its_multiples() -> None:
    effects = [*map(as_computed, OTHERS), as_computed(FIRST), number(SECOND)]
    best, *_ = pairs_of(effects, GAP, 10)
    assert (best.first, best.second) == (300, 301)
    assert best.explained > 0.9
    np.testing.assert_allclose(best.shares, (1.0, 0.6), atol=0.1)


def test_a_change_as_it_was_computed_has_its_own_size() -> None:
    effects = [*map(as_computed, OTHERS[:50]), as_computed(FIRST), as_computed(4 * SECOND)]
    assert all({50, 51} != {pair.first, pair.second} for pair in pairs_of(effects, GAP, 50))


def test_pairs_that_explain_no_more_than_chance_are_none() -> None:
    gap = np.random.default_rng(9).normal(size=TOKENS)
    assert not pairs_of([number(one) for one in OTHERS], gap, 10)


def test_a_second_change_must_improve_on_the_best_single_one() -> None:
    effects = [*map(number, OTHERS), number(GAP + 0.1 * ERROR)]
    assert not pairs_of(effects, GAP, 10)


def test_changes_of_one_place_are_no_pair() -> None:
    effects = [as_computed(FIRST, place="window"), as_computed(0.6 * SECOND, place="window")]
    assert not pairs_of(effects, GAP, 10)


def test_the_opposite_of_a_factor_is_possible() -> None:
    factor = Effect(-SECOND, 0.05, 3.0, may_be_opposite=True)
    (pair,) = pairs_of([as_computed(FIRST), factor], GAP, 10)
    assert pair.shares[1] < 0
