"""The block means of a whole run, in constant memory, and the trend over it."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from grpodoctor.runs.block_means import MOST_BLOCKS
from grpodoctor.runs.chart import Series
from grpodoctor.runs.estimators import implied_count, trend_score


def series(values: list[float]) -> Series:
    result = Series()
    for step, value in enumerate(values):
        result.append(step, value)
    return result


@pytest.mark.parametrize("count", [200, 6_400, 12_345])
def test_a_long_run_is_kept_in_blocks_of_equal_size(count: int) -> None:
    run = series([float(step) for step in range(count)])
    means = run.blocks.means
    assert MOST_BLOCKS / 4 < len(means) < MOST_BLOCKS or count < 640
    widths = {round(later - mean) for mean, later in pairwise(means)}
    assert len(widths) == 1
    assert run.whole_run() == means
    assert 0 <= count - run.readings < 10


def test_a_short_run_is_kept_as_it_is() -> None:
    run = series([1.0, math.nan, 3.0])
    assert (run.whole_run(), run.readings) == ([1.0, 3.0], 3)


def test_a_run_that_goes_back_forgets_the_abandoned_branch() -> None:
    run = series([0.0] * 300 + [9.0] * 100)
    run.rewind(300)
    for step in range(300, 400):
        run.append(step, 0.0)
    assert set(run.whole_run()) == {0.0}
    assert run.trend == 0


@given(st.lists(st.integers(0, 5).map(float), min_size=5, max_size=40))
def test_the_trend_is_that_of_kendall(values: list[float]) -> None:
    tau = kendalltau(range(len(values)), values).statistic
    score = trend_score(values)
    if math.isnan(tau) or abs(tau) < 1e-12:
        assert score == 0
    else:
        assert score * tau >= 0
        assert trend_score(values[::-1]) == pytest.approx(-score)


def test_the_trend_follows_the_standard_normal_distribution_without_a_trend() -> None:
    draw = random.Random(1)
    scores = [trend_score([draw.gauss(0, 1) for _ in range(30)]) for _ in range(2000)]
    assert sum(score > 1.645 for score in scores) / len(scores) == pytest.approx(0.05, abs=0.02)


def test_a_slow_rise_shows_in_all_readings_together() -> None:
    draw = random.Random(2)
    values = [0.70 + 0.06 * step / 1500 + draw.gauss(0, 0.06) for step in range(1500)]
    assert series(values).trend > 2.5


def test_values_that_are_not_finite_have_no_part_in_the_trend() -> None:
    assert trend_score([1, math.nan, 2, math.inf, 3, 4]) == trend_score([1, 2, 3, 4])
    assert math.isnan(trend_score([1, 2]))


def test_exact_shares_imply_how_many_responses_there_are() -> None:
    assert implied_count([376 / 664, 373 / 664, 361 / 664, 338 / 664]) == 664
    assert implied_count([0.566, 0.562, 0.544, 0.509]) is None  # rounded
    assert implied_count([0.5663, 0.5617, 0.5443, 0.5091]) is None
    assert implied_count([1.5, 0.2]) is None
    assert implied_count([math.nan]) is None
