"""From where to where a metric moved: the same two levels in the verdict and in the vitals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from grpodoctor.rules.base import Sighting
from grpodoctor.rules.reward.no_rise import NoRise
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.rules.shared.health.whole_run import quarter_means, rises_over_run
from grpodoctor.rules.shared.outcome.flat_outcome import flat_levels, is_above_start
from grpodoctor.rules.shared.shapes.trend import OUTCOMES
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import BASELINE, OPENING, Series

_LONG = 2 * BASELINE
"""Readings from which the first ten and the latest ten do not overlap."""

_SHORT = 2 * OPENING
"""Readings from which the first three and the latest three do not overlap."""


@dataclass(frozen=True, slots=True)
class LevelChange:
    """The first and the latest level of a metric, as its verdict and its rules compare them."""

    start: float
    now: float
    basis: str
    """What the two levels are, such as `medians of first 10 → latest 10 readings`."""


def _medians(first: int, latest: int) -> str:
    return f"medians of first {first} → latest {latest} readings"


USUAL_BASIS = _medians(BASELINE, RECENT)
"""The basis of the levels in most rules, and in most vitals of a run with enough readings."""

QUARTERS = "means of first → last quarter"
_MEANS = USUAL_BASIS.replace("medians", "means")
_FLAT_BASIS = {"quarters": QUARTERS, "means": _MEANS, "medians": USUAL_BASIS}
_ENDS = "first → latest reading"


def level_change_of(chart: Chart, metric: str) -> LevelChange | None:
    """From where to where a metric moved.

    The levels are those of the rules: medians of the first and of the latest ten readings. The
    first ten are replaced by the first three if the metric changed within them, and both by three
    if there are fewer than twenty readings. If an outcome rises over the whole run only, they are
    the means of the first and the last quarter. If an outcome has not risen, they are the levels
    that REW020 states; see `flat_levels`.

    Returns:
        None without two finite readings.
    """
    series = chart.series(metric)
    if metric in OUTCOMES and not is_above_start(series):
        if rises_over_run(series):
            return LevelChange(*quarter_means(series), QUARTERS)
        if len(series) >= _LONG and isinstance(NoRise().examine(chart), Sighting):
            levels = flat_levels(series)
            return LevelChange(levels.start, levels.now, _FLAT_BASIS[levels.basis])
    return _levels(series, is_above_start(series))


def _levels(series: Series, is_judged: bool) -> LevelChange | None:
    """The medians, or the readings themselves if they are few.

    Args:
        series: the readings.
        is_judged: whether the medians of ten decide, although they may overlap.
    """
    start, opening = series.start, series.opening
    if start is not None and (is_judged or len(series) >= _LONG):
        first = BASELINE if start is series.baseline else OPENING
        return _finite(start.level, series.level(RECENT), _medians(first, RECENT))
    if opening is not None and len(series) >= _SHORT:
        return _finite(opening.level, series.level(OPENING), _medians(OPENING, OPENING))
    finite = [value for value in series.tail(_SHORT) if math.isfinite(value)]
    return LevelChange(finite[0], finite[-1], _ENDS) if len(finite) > 1 else None


def _finite(start: float, now: float, basis: str) -> LevelChange | None:
    return LevelChange(start, now, basis) if math.isfinite(now) else None
