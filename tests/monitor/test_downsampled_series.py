from itertools import pairwise

import pytest

from grpodoctor.monitor.downsampled_series import CAPACITY, Track, Tracks
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Mean, NotApplicable


def test_a_short_course_is_kept_point_by_point():
    track = Track()
    for step in range(100):
        track.append(step, step % 7)
    assert track.points() == [(step, step % 7) for step in range(100)]


@pytest.mark.parametrize("steps", [CAPACITY * 2, CAPACITY * 10 + 3])
def test_a_long_course_is_thinned_and_keeps_its_spike(steps):
    track = Track()
    for step in range(steps):
        track.append(step, 99.0 if step == steps // 3 else 1.0)
    points = track.points()
    assert len(points) <= 2 * CAPACITY
    assert (steps // 3, 99.0) in points
    assert points[0][0] == 0
    assert points[-1][0] > steps - steps // 100 - 3
    assert all(one[0] < other[0] for one, other in pairwise(points))


def test_going_back_forgets_the_later_part():
    tracks = Tracks(["entropy/mean"])
    for step in [0, 1, 2, 3, 2]:
        tracks.observe(StepRecord(step, {"entropy/mean": Mean.of([step + 0.5])}))
    assert tracks.points("entropy/mean") == [(0, 0.5), (1, 1.5), (2, 2.5)]


def test_what_is_absent_or_not_applicable_leaves_no_point():
    tracks = Tracks(["clip/low_rate"])
    tracks.observe(StepRecord(0, {"clip/low_rate": NotApplicable("on-policy")}))
    tracks.observe(StepRecord(1, {}))
    assert tracks.points("clip/low_rate") == []
    assert tracks.points("entropy/mean") == []
