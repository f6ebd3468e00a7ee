"""The shared estimators against their definitions."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from grpodoctor.runs.estimators import level_shift, robust_level, step_noise

FLOATS = st.floats(-1e6, 1e6)


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


def test_noise_is_distinguished_from_trend() -> None:
    random = np.random.default_rng(1)
    trend = np.linspace(0, 100, 4000)
    assert step_noise((trend + random.normal(0, 2, 4000)).tolist()) == pytest.approx(2, rel=0.05)
    assert step_noise(trend.tolist()) < 0.03
    assert math.isnan(step_noise([1.0, math.inf]))
