"""Times as labels of a step axis."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from grpodoctor.monitor.downsampled_series import Point, SeriesByMetric
from grpodoctor.report.run.time_axis import time_labels
from grpodoctor.runs.records import StepRecord

START = datetime(2026, 11, 22, 21, 50, tzinfo=UTC).timestamp()


def times_of(steps, seconds):
    return [Point(step, START + seconds * step) for step in range(steps)]


def test_labels_are_round_times_at_their_steps():
    labels = time_labels(times_of(300, 60), (0, 299))
    assert labels.texts == ("22:00<br>Nov 22", "23:00", "00:00<br>Nov 23", "01:00", "02:00")
    assert labels.steps == pytest.approx([10, 70, 130, 190, 250])


def test_a_part_of_the_axis_has_labels_of_its_own():
    labels = time_labels(times_of(300, 60), (60, 70))
    assert labels.texts == ("22:50<br>Nov 22", "22:52", "22:54", "22:56", "22:58", "23:00")
    assert labels.steps[0] == pytest.approx(60)


def test_a_pause_takes_no_space():
    times = [*times_of(50, 60), *(point._replace(step=point.step + 50, value=point.value + 864_000)
                                  for point in times_of(50, 60))]  # fmt: skip
    labels = time_labels(times, (0, 99))
    assert all(after - before >= 5 for before, after in pairwise(labels.steps))


def test_a_clock_that_goes_back_does_not_reverse_the_labels():
    times = [Point(step, START + (60 if step < 50 else 30) * step) for step in range(100)]
    labels = time_labels(times, (0, 99))
    assert list(labels.steps) == sorted(labels.steps)


@pytest.mark.parametrize("times", [[], [Point(0, START)], [Point(500, START), Point(600, START)]])
def test_a_run_without_times_has_no_labels(times):
    assert time_labels(times, (0, 99)) is None


def test_equal_times_have_one_label():
    assert time_labels([Point(0, START + 7), Point(9, START + 7)], (0, 9)).texts


def test_the_times_of_a_run_are_kept_and_taken_back_when_it_is_resumed():
    series = SeriesByMetric(())
    for step, time in [(0, START), (1, START + 5), (2, 0.0), (3, START + 9), (1, START + 20)]:
        series.observe(StepRecord(step, {}, time=time))
    assert series.times() == [Point(0, START), Point(1, START + 20)]
