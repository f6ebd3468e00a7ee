"""Jumps of a metric at the step at which a curriculum goes on to other tasks."""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import pairwise

from grpodoctor.rules.base import Sighting
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series

_STAGE = "prompts/stage"
_STEADY, _SINCE = 5, 3
"""Readings before and after a change with one stage each: batches of mixed tasks have none."""
_MOST_OF = 0.5
"""Share of a jump that must come at the change of the stage."""
_KEPT = 0.65
"""Share of the level just after the change that must be left, as REW002 judges a loss."""


def stage_changes(chart: Chart) -> list[int]:
    """The first steps of the stages in the window that follow another one; usually none."""
    series = chart.series(_STAGE)
    if not len(series) or series.window_min() == series.window_max():
        return []
    steps, stages = series.steps(WINDOW), series.tail(WINDOW)
    return [
        steps[index]
        for index, (before, after) in enumerate(pairwise(stages), start=1)
        if before != after and _is_steady(stages, index)
    ]


def _is_steady(stages: list[float], index: int) -> bool:
    before, after = stages[max(0, index - _STEADY) : index], stages[index : index + _STEADY]
    is_long = len(before) == _STEADY and len(after) >= _SINCE
    return is_long and len(set(before)) == len(set(after)) == 1


def jumped_with_stage(chart: Chart, series: Series, before: float) -> int | None:
    """The step of the change of the stage that most of a jump comes with; None without one.

    What the metric does after the jump must be within its noise, or no loss worth a finding.

    Args:
        chart: the run.
        series: the metric that has left its level.
        before: the level that it left.
    """
    now = series.level(RECENT)
    steps, values = series.steps(WINDOW), series.tail(WINDOW)
    for change in reversed(stage_changes(chart)):
        earlier = [value for step, value in zip(steps, values, strict=True) if step < change]
        later = [value for step, value in zip(steps, values, strict=True) if step >= change]
        if len(earlier) < _STEADY or len(later) < _SINCE:
            continue
        then = statistics.median(later[:RECENT])
        jump = statistics.median(earlier[-_STEADY:]) - statistics.median(later[:_STEADY])
        is_jump = abs(jump) >= _MOST_OF * abs(before - now) and jump * (before - now) > 0
        if is_jump and now >= min(_KEPT * then, then - 2 * series.noise(RECENT)):
            return change
    return None


def fall_with_stage(chart: Chart, sighting: Sighting) -> Sighting | None:
    """A fall to the level that the next tasks of a curriculum start at: a note."""
    evidence = sighting.evidence[0]
    if evidence.baseline is None:
        return None
    change = jumped_with_stage(chart, chart.series(evidence.metric), evidence.baseline)
    if change is None:
        return None
    fall = sighting.summary.rstrip(".").split(";")[0].split(" (best")[0]
    now = chart.series(evidence.metric).level(RECENT)
    if " to " not in fall:
        fall = f"{fall} to {now:.3g}"
    text = f"{fall} as other tasks began at step {change}."
    return replace(sighting, severity="info", summary=text, remedies=(), ends_severer=True)
