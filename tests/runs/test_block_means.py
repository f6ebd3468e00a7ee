"""The block means of a whole run, in constant memory, and the trend over it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from grpodoctor.runs.block_means import MOST_BLOCKS
from grpodoctor.runs.estimators import Trend, implied_count, least_count
from grpodoctor.runs.series import Series


def series(values: list[float]) -> Series:
    result = Series()
    for step, value in enumerate(values):
        result.append(step, value)
    return result


@pytest.mark.parametrize("count", [1, 9, 200, 300, 6_400, 12_345])
def test_the_course_covers_the_run_from_its_first_to_its_latest_readings(count: int) -> None:
    run = series([float(step) for step in range(count)])
    course, size = run.course(), run.blocks.size
    assert course[0] == (size - 1) / 2
    assert count - size <= course[-1] <= count - 1
    assert course == sorted(course)
    assert len(course) == math.ceil(count / size)


def test_the_course_keeps_what_is_not_finite_in_a_short_run() -> None:
    run = series([1.0, math.nan, math.inf])
    assert [math.isfinite(value) for value in run.course()] == [True, False, False]
    run.rewind(1)
    assert run.course() == [1.0]


def trend_score(values: Sequence[float]) -> float:
    trend = Trend()
    for value in values:
        trend.add(value)
    return trend.score


@pytest.mark.parametrize("count", [300, 6_400, 12_345])
def test_a_long_run_is_kept_in_blocks_of_equal_size(count: int) -> None:
    run = series([float(step) for step in range(count)])
    means = run.blocks.means
    assert MOST_BLOCKS / 2 <= len(means) < MOST_BLOCKS
    width = run.blocks.size
    assert width > 1
    assert list(means) == [at * width + (width - 1) / 2 for at in range(len(means))]
    assert run.whole_run() == list(means)
    assert run.readings == count


@pytest.mark.parametrize("count", [127, 128, 131, 255])
def test_all_readings_are_kept_until_the_blocks_are_full(count: int) -> None:
    values = [float(step % 7) for step in range(count)]
    run = series(values)
    assert run.whole_run() == values
    assert run.readings == count


@pytest.mark.parametrize("counts", [(127, 128), (255, 256), (511, 512), (1023, 1024)])
def test_a_trend_does_not_weaken_when_readings_become_blocks(counts: tuple[int, int]) -> None:
    draw = random.Random(4)
    scores = []
    for _ in range(30):
        values = [draw.gauss(4.5 * step / counts[0] ** 1.5 * 12**0.5, 1) for step in range(1024)]
        scores.append([series(values[:count]).trend for count in counts])
    before, after = (sum(column) / len(scores) for column in zip(*scores, strict=True))
    assert before == pytest.approx(4.3, abs=0.6)
    assert after > 0.93 * before


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, math.nan]), max_size=600), st.integers(0, 600))
def test_the_trend_is_the_same_whenever_it_was_asked_for(values: list[float], back: int) -> None:
    asked, unasked = Series(), Series()
    for step, value in enumerate(values):
        asked.append(step, value)
        unasked.append(step, value)
        assert not asked.trend > 1e9
        if step == len(values) // 2:
            asked.rewind(back)
            unasked.rewind(back)
    scores = [trend_score(asked.whole_run()), unasked.trend]
    assert [asked.trend] * 2 == pytest.approx(scores, nan_ok=True)


def test_a_short_run_is_kept_as_it_is() -> None:
    run = series([1.0, math.nan, 3.0])
    assert (run.whole_run(), run.readings) == ([1.0, 3.0], 3)


def test_a_short_run_that_goes_back_keeps_what_was_before() -> None:
    run = series([float(step) for step in range(27)])
    run.rewind(24)
    run.append(24, 5.0)
    assert run.whole_run() == [*map(float, range(24)), 5.0]


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
    assert least_count([0.566, 0.562, 0.544, 0.509]) <= 664  # of 376, 373, 361 and 338
    assert least_count([0.215, 0.085, 0.065, 0.035]) == 200
    assert least_count([0.22, 0.1]) == 40  # 9 and 4 of 40, or more
    assert least_count([1.5, 0.2]) == least_count([1 / 3]) == 1
    assert implied_count([math.nan]) is None
