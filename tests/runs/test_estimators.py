"""The shared estimators against their definitions."""

import math
import statistics
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from grpodoctor.runs.estimators import level_shift, robust_level, robust_slope, step_noise

FLOATS = st.floats(-1e6, 1e6)


@given(st.lists(FLOATS, min_size=2, max_size=40))
def test_the_slope_is_that_of_theil_and_sen(values: list[float]) -> None:
    steps = [3 * step + step % 2 for step in range(len(values))]
    expected = stats.theilslopes(values, steps).slope
    assert robust_slope(steps, values) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_quarter_of_outliers_does_not_turn_the_slope() -> None:
    steps = list(range(32))
    values = [0.5 * step for step in steps]
    for step in range(0, 32, 4):
        values[step] = 1e9 if step % 8 else -1e9
    values[5] = math.nan
    values[6] = math.inf
    assert robust_slope(steps, values) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_points_have_no_slope(count: int) -> None:
    assert robust_slope(range(count), [1.0] * count) == 0
    assert robust_slope([4, 4, 4], [1.0, 2.0, 3.0]) == 0


@given(st.lists(FLOATS, min_size=1, max_size=40))
def test_level_and_spread_are_median_and_deviation(values: list[float]) -> None:
    level, spread = robust_level([*values, math.nan, math.inf])
    assert level == statistics.median(values)
    assert spread == pytest.approx(stats.median_abs_deviation(values) * 1.4826, abs=1e-9)


def test_nothing_has_no_level() -> None:
    assert all(math.isnan(each) for each in robust_level([math.nan]))
    assert math.isnan(level_shift([], [1.0]))


def test_inputs_are_not_changed() -> None:
    values = np.array([3.0, 1.0, 2.0])
    robust_level(values)  # type: ignore[arg-type]  # an array is a sequence in all that matters
    assert values.tolist() == [3.0, 1.0, 2.0]


def test_a_shift_is_in_standard_errors() -> None:
    """Of windows drawn alike, about one in twenty moves by more than two standard errors."""
    random = np.random.default_rng(0)
    shifts = [
        level_shift(random.normal(0, 1, 60).tolist(), random.normal(0, 1, 60).tolist())
        for _ in range(2000)
    ]
    far = np.mean(np.abs(shifts) > 2)
    assert 0.01 < far < 0.08
    moved = level_shift(random.normal(0, 1, 60).tolist(), random.normal(2, 1, 60).tolist())
    assert moved > 5


def test_constant_windows_shift_infinitely_or_not_at_all() -> None:
    assert level_shift([1.0] * 5, [1.0] * 5) == 0
    assert level_shift([1.0] * 5, [0.0] * 5) == -math.inf


def test_all_pairs_are_counted_once() -> None:
    values = [0.0, 1.0, 4.0, 9.0]
    slopes = [(values[j] - values[i]) / (j - i) for i, j in combinations(range(4), 2)]
    assert robust_slope(range(4), values) == statistics.median(slopes)


def test_noise_is_told_from_trend() -> None:
    random = np.random.default_rng(1)
    trend = np.linspace(0, 100, 4000)
    assert step_noise((trend + random.normal(0, 2, 4000)).tolist()) == pytest.approx(2, rel=0.05)
    assert step_noise(trend.tolist()) < 0.03
    assert math.isnan(step_noise([1.0, math.inf]))
