"""Moving means are means of all readings, also of those that a long series has thinned out."""

import math

import numpy as np
import pytest

from grpodoctor.monitor.downsampled_series import CAPACITY, MeanPoint, SeriesByMetric
from grpodoctor.monitor.report import Report, RunFacts
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.report.run.charts import linked_figure
from grpodoctor.report.run.panels import panels
from grpodoctor.report.run.smoothing import moving_mean, with_moving_means
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Mean


def series_of(values):
    series = SeriesByMetric(["reward/mean"])
    for step, value in enumerate(values):
        series.observe(StepRecord(step, {"reward/mean": Mean.of_number(value)}))
    return series


@pytest.mark.parametrize("window", [2, 10, 50])
def test_a_mean_takes_the_readings_around_its_step(window):
    values = np.random.default_rng(0).normal(size=200)
    means = moving_mean(series_of(values).means("reward/mean"), window)
    half = window // 2
    for step, mean in means:
        at = int(step)
        assert mean == pytest.approx(values[max(0, at - half) : at + half + 1].mean())
    assert len(means) == 200


def test_a_long_run_has_the_means_of_all_its_readings():
    steps = 9 * CAPACITY
    # Skewed: the middle of the lowest and the highest reading is far from the mean.
    values = np.random.default_rng(1).lognormal(sigma=2.0, size=steps)
    points = series_of(values).means("reward/mean")
    assert len(points) <= CAPACITY
    assert sum(point.readings for point in points) == steps
    assert sum(point.total for point in points) == pytest.approx(values.sum())
    (_, first), *_ = moving_mean(points, 4000)
    assert first == pytest.approx(values[:2000].mean(), rel=0.02)


def test_a_rewind_keeps_the_readings_before_it():
    steps = 3 * CAPACITY
    series = series_of(np.arange(steps, dtype=float))
    series.observe(StepRecord(steps // 2, {"reward/mean": Mean.of_number(0.0)}))
    points = series.means("reward/mean")
    assert steps // 2 - 3 <= sum(point.readings for point in points) <= steps // 2 + 1
    assert sum(point.total for point in points) == pytest.approx(steps**2 / 8, rel=0.01)


def test_readings_that_are_no_numbers_do_not_count():
    points = series_of([1.0, math.nan, 3.0]).means("reward/mean")
    assert [mean for _, mean in moving_mean(points, 10)] == [2.0, 2.0]


def test_steps_without_readings_do_not_count():
    points = [MeanPoint(0, 1.0, 1), MeanPoint(100, 5.0, 1)]
    assert moving_mean(points, 10) == ((0.0, 1.0), (100.0, 5.0))
    assert moving_mean([], 10) == ()


def test_a_chart_shows_the_mean_over_the_faint_curve():
    series = series_of([0.0, 1.0] * 100)
    data = ReportData(Report(RunFacts("run", "verl")), series=series)
    plain, smoothed = (
        linked_figure(shown).data
        for shown in (panels(data), with_moving_means(panels(data), [series], 50))
    )
    assert [trace.name for trace in plain] == ["training"]
    curve, mean = smoothed
    assert curve.opacity < 0.5
    assert list(curve.y) == list(plain[0].y)
    assert np.ptp(mean.y) < 0.05
    assert mean.hoverinfo == "skip"
