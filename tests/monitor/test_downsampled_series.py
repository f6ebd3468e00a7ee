import math
from itertools import pairwise

import pytest

from grpodoctor.monitor.downsampled_series import (
    CAPACITY,
    MOST_PARTS,
    PART_CAPACITY,
    DownsampledSeries,
    SeriesByMetric,
)
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable


def test_a_short_series_is_kept_point_by_point():
    series = DownsampledSeries()
    for step in range(100):
        series.append(step, step % 7)
    assert [point[:2] for point in series.points()] == [(step, step % 7) for step in range(100)]


@pytest.mark.parametrize("spike", [99.0, -99.0])
@pytest.mark.parametrize("steps", [CAPACITY * 2, CAPACITY * 10 + 3])
def test_a_long_series_is_thinned_and_keeps_its_spike(steps, spike):
    series = DownsampledSeries()
    for step in range(steps):
        series.append(step, spike if step == steps // 3 else 1.0)
    points = series.points()
    assert len(points) <= 2 * CAPACITY
    assert (steps // 3, spike, "") in points
    assert points[0].step == 0
    assert points[-1].step > steps - steps // 100 - 3
    assert all(one.step < other.step for one, other in pairwise(points))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_kept_and_hides_no_spike(broken):
    series = DownsampledSeries()
    for step in range(CAPACITY * 8):
        series.append(step, {3000: broken, 3001: 7.0, 3002: -7.0}.get(step, 0.0))
    kept = {point.step: point.value for point in series.points()}
    assert not math.isfinite(kept[3000])
    assert (kept[3001], kept[3002]) == (7.0, -7.0)


def test_an_extreme_value_keeps_its_sequence():
    series = SeriesByMetric(["ratio/max"])
    for step in range(CAPACITY * 4):
        series.observe(StepRecord(step, {"ratio/max": Max(float(step == 777), f"seq-{step}")}))
    assert (777, 1.0, "seq-777") in series.points("ratio/max")


def test_going_back_forgets_the_later_part():
    series = SeriesByMetric(["entropy/mean"])
    for step in [0, 1, 2, 3, 2]:
        series.observe(StepRecord(step, {"entropy/mean": Mean.of([step + 0.5])}))
    points = [point[:2] for point in series.points("entropy/mean")]
    assert points == [(0, 0.5), (1, 1.5), (2, 2.5)]


def test_going_back_keeps_the_earlier_part_of_a_bucket():
    series = DownsampledSeries()
    steps = CAPACITY * 4
    for step in range(steps):
        series.append(step, float(step))
    series.rewind(402)  # in the middle of the bucket of steps 400 to 403
    series.append(402, 1.0)
    points = series.points()
    assert points[-2:] == [(400, 400.0, ""), (402, 1.0, "")]


def test_what_is_absent_or_not_applicable_leaves_no_point():
    series = SeriesByMetric(["clip/low_rate"])
    series.observe(StepRecord(0, {"clip/low_rate": NotApplicable("on-policy")}))
    series.observe(StepRecord(1, {}))
    series.observe(StepRecord(2, {"clip/low_rate": Mean.of([])}))
    assert series.points("clip/low_rate") == []
    assert series.points("entropy/mean") == []


def test_a_logged_nan_is_a_point():
    series = SeriesByMetric(["entropy/mean"])
    series.observe(StepRecord(0, {"entropy/mean": Mean.of_number(math.nan)}))
    (point,) = series.points("entropy/mean")
    assert math.isnan(point.value)


def test_a_copy_does_not_change_with_its_original():
    series = SeriesByMetric(["entropy/mean"])
    for step in range(CAPACITY * 2 + 1):
        series.observe(StepRecord(step, {"entropy/mean": Mean.of([0.5])}))
    copied = series.copy()
    before = copied.points("entropy/mean")
    series.observe(StepRecord(CAPACITY * 2 + 1, {"entropy/mean": Mean.of([9.5])}))
    assert copied.points("entropy/mean") == before
    assert series.points("entropy/mean") != before


def test_layers_and_positions_are_kept_by_their_numbers():
    series = SeriesByMetric(["experts/churn_update"], ["experts/churn_update"])
    names = [f"experts/churn_update/layer/{layer}" for layer in (0, 10, 9, 2)]
    for step in range(PART_CAPACITY * 3):
        readings = {name: Mean.of([0.5 if step == 100 else 0.1]) for name in names}
        series.observe(StepRecord(step, {**readings, "ratio/max/layer/1": Mean.of([1.0])}))
    layers = series.copy().parts("experts/churn_update", "layer")
    assert list(layers) == ["0", "2", "9", "10"]
    assert all((100, 0.5, "") in points for points in layers.values())
    assert series.parts("ratio/max", "layer") == {}
    assert series.parts("experts/churn_update", "position") == {}


def test_the_number_of_parts_is_bounded():
    series = SeriesByMetric([], ["experts/churn_update"])
    for layer in range(2 * MOST_PARTS):
        name = f"experts/churn_update/layer/{layer}"
        series.observe(StepRecord(layer, {name: Mean.of([0.1])}))
    assert len(series.parts("experts/churn_update", "layer")) == MOST_PARTS


def test_further_metrics_are_kept_as_they_come_up_to_a_number():
    series = SeriesByMetric((), further=2)
    for step in range(1000):
        names = ["a", "b", "c"] if step >= 500 else ["a"]
        values = {name: Mean.of_number(9.0 if step == 700 else 1.0) for name in names}
        series.observe(StepRecord(step, values))
    assert series.metrics == ["a", "b"]
    points = series.points("b")
    assert points[0].step == 500
    assert points[-1].step > 990
    assert [point.step for point in points if point.value == 9.0] == [700]
    assert series.points("c") == []


def test_parts_of_a_metric_are_no_further_metrics():
    series = SeriesByMetric((), further=9)
    series.observe(StepRecord(1, {"experts/churn_update/layer/3": Mean.of_number(0.5)}))
    assert series.metrics == []
