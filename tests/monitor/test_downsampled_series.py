from itertools import pairwise

import pytest

from grpodoctor.monitor.downsampled_series import CAPACITY, DownsampledSeries, SeriesByMetric
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Mean, NotApplicable


def test_a_short_series_is_kept_point_by_point():
    series = DownsampledSeries()
    for step in range(100):
        series.append(step, step % 7)
    assert series.points() == [(step, step % 7) for step in range(100)]


@pytest.mark.parametrize("steps", [CAPACITY * 2, CAPACITY * 10 + 3])
def test_a_long_series_is_thinned_and_keeps_its_spike(steps):
    series = DownsampledSeries()
    for step in range(steps):
        series.append(step, 99.0 if step == steps // 3 else 1.0)
    points = series.points()
    assert len(points) <= 2 * CAPACITY
    assert (steps // 3, 99.0) in points
    assert points[0][0] == 0
    assert points[-1][0] > steps - steps // 100 - 3
    assert all(one[0] < other[0] for one, other in pairwise(points))


def test_going_back_forgets_the_later_part():
    series = SeriesByMetric(["entropy/mean"])
    for step in [0, 1, 2, 3, 2]:
        series.observe(StepRecord(step, {"entropy/mean": Mean.of([step + 0.5])}))
    assert series.points("entropy/mean") == [(0, 0.5), (1, 1.5), (2, 2.5)]


def test_what_is_absent_or_not_applicable_leaves_no_point():
    series = SeriesByMetric(["clip/low_rate"])
    series.observe(StepRecord(0, {"clip/low_rate": NotApplicable("on-policy")}))
    series.observe(StepRecord(1, {}))
    assert series.points("clip/low_rate") == []
    assert series.points("entropy/mean") == []
