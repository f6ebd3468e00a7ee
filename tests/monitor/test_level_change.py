"""From where to where a metric moved: one definition for the verdict, the vitals and the rules."""

from __future__ import annotations

from statistics import fmean, median

import pytest

from grpodoctor.monitor.diagnosis.diagnose import _progress
from grpodoctor.monitor.level_change import QUARTERS, USUAL_BASIS, level_change_of
from grpodoctor.monitor.vitals import vital_signs
from grpodoctor.rules.base import Sighting
from grpodoctor.rules.reward.no_rise import NoRise
from grpodoctor.rules.shared.shapes.trend import change
from grpodoctor.runs.chart import Chart
from tests.rules.scenario import Curve, Patient, noisy, ramp, steps

REWARD, ENTROPY = "reward/mean", "entropy/mean"


def chart_of(count: int, curves: dict[str, Curve]) -> Chart:
    return Patient(steps(count, curves)).engine.chart


def test_a_single_noisy_reading_at_the_end_is_not_where_a_metric_moved() -> None:
    values = [0.1] * 20 + [0.9] * 40 + [0.3]
    level_change = level_change_of(chart_of(61, {REWARD: values}), REWARD)
    assert level_change is not None
    assert (level_change.start, level_change.now, level_change.basis) == (0.1, 0.9, USUAL_BASIS)


def test_a_metric_that_changes_within_its_first_readings_starts_before_the_change() -> None:
    """A public run: the median of the first ten readings is a third of the first ones."""
    values = [0.5, 0.46, 0.45, 0.3, 0.2, 0.14, 0.12, 0.1, 0.09, 0.08, *[0.05] * 40]
    level_change = level_change_of(chart_of(50, {ENTROPY: values}), ENTROPY)
    assert level_change is not None
    assert (level_change.start, level_change.now) == (0.46, 0.05)
    assert level_change.basis.startswith("medians of first 3 →")


@pytest.mark.parametrize("count", [6, 12, 19, 25, 60])
def test_the_levels_are_those_that_rules_compare(count: int) -> None:
    chart = chart_of(count, {ENTROPY: noisy(ramp(1.0, 0.4, count), 0.02, 1)})
    level_change, series = level_change_of(chart, ENTROPY), chart.series(ENTROPY)
    assert level_change is not None
    assert level_change.now - level_change.start == pytest.approx(change(series)[0])


def test_few_readings_are_shown_as_they_are() -> None:
    assert level_change_of(chart_of(1, {ENTROPY: 0.5}), ENTROPY) is None
    level_change = level_change_of(chart_of(4, {ENTROPY: [0.5, 0.9, 0.8, 0.4]}), ENTROPY)
    assert level_change is not None
    assert (level_change.start, level_change.now, level_change.basis) == (
        0.5,
        0.4,
        "first → latest reading",
    )


def test_the_verdict_and_the_vitals_state_the_same_levels() -> None:
    for curve in (
        noisy(ramp(0.2, 0.8, 80), 0.05, 1),  # above its start
        noisy(ramp(0.5, 0.56, 100), 0.06, 2),  # rises over the run only
        noisy(0.5, 0.05, 3),  # flat
    ):
        chart = chart_of(100, {REWARD: curve})
        (vital,) = vital_signs(chart)
        assert vital.level_change is not None
        levels = f"reward {vital.level_change.start:.3g} → {vital.level_change.now:.3g}"
        assert _progress(chart).startswith(levels)
        assert (vital.level_change.basis == QUARTERS) == (QUARTERS in _progress(chart))


def test_an_outcome_without_a_rise_has_the_means_that_the_note_states() -> None:
    values = [0.0, 0.0, 1.5, 0.0, 0.0] * 24
    chart = chart_of(120, {REWARD: values})
    level_change, note = level_change_of(chart, REWARD), NoRise().examine(chart)
    assert level_change is not None
    assert (level_change.start, level_change.now) == (fmean(values[:30]), fmean(values[90:]))
    assert median(values) == 0.0
    assert isinstance(note, Sighting)
    assert note.summary.startswith(
        f"Reward {level_change.start:.3g} → {level_change.now:.3g}, within"
    )


def test_progress_begins_with_the_measure_that_rose() -> None:
    chart = chart_of(
        100, {REWARD: noisy(0.6, 0.02, 1), "reward/heldout": noisy(ramp(0.6, 0.8, 90), 0.01, 2)}
    )
    text = _progress(chart)
    assert text.startswith("held-out reward 0.6")
    assert ", training reward 0." in text
