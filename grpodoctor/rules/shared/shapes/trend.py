"""How far a metric has moved since the start of the run, compared with its noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    first_step_where,
    is_stuck,
    outcome_metric,
    reading_noise,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import BASELINE, OPENING, Series, once_per_reading

OUTCOMES = ("accuracy/train", "reward/mean", "accuracy/heldout", "reward/heldout")
"""Metrics that rise if a run achieves anything."""


def start_level(series: Series) -> float | None:
    """The starting value; the first three readings before there are twenty."""
    if series.start is not None and len(series) >= 2 * BASELINE:
        return series.start.level
    return series.opening.level if series.opening is not None else None


@once_per_reading
def change(series: Series) -> tuple[float, float]:
    """The latest level minus the starting value, and the standard error of this difference.

    Both are NaN until the two do not overlap.
    """
    start = start_level(series)
    if start is None or len(series) < 2 * OPENING:
        return math.nan, math.nan
    is_long = len(series) >= 2 * BASELINE
    first, latest = (BASELINE, RECENT) if is_long else (OPENING, OPENING)
    # The median of n normal values has a standard error of sqrt(pi / 2n) standard deviations.
    error = reading_noise(series) * math.sqrt(math.pi / 2 * (1 / first + 1 / latest))
    return series.level(latest) - start, error


def has_risen(series: Series, errors: float = 1.0) -> bool | None:
    """Whether a metric is above its starting value by so many standard errors; None if unknown."""
    rise, error = change(series)
    return None if math.isnan(rise) else rise > errors * error


def outcome_has_risen(chart: Chart) -> bool | None:
    """Whether accuracy or reward, in training or held out, has risen; None if neither is logged.

    One standard error is enough. Rules that warn of a run without progress give it the benefit of
    the doubt.
    """
    if is_stuck(chart):
        return False
    answers = [has_risen(chart.series(name)) for name in OUTCOMES]
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None


def began_half_way(series: Series, start: float) -> Callable[[], int]:
    """Finds the step since which a metric is nearer to its current level than to `start`."""
    level = series.level(RECENT)
    middle, rises = (start + level) / 2, level > start
    holds = partial(_is_beyond, middle, rises)
    return partial(first_step_where, series, holds)


def _is_beyond(middle: float, rises: bool, value: float) -> bool:
    return value >= middle if rises else value <= middle


def outcome_start(chart: Chart) -> dict[str, float | None]:
    """The outcome's starting value in `outcome_text`, for the evidence below that sentence."""
    name = outcome_metric(chart)
    return {} if name is None else {name: start_level(chart.series(name))}


def outcome_text(chart: Chart) -> str:
    """What to call the outcome in a summary, with its starting and current level."""
    name = outcome_metric(chart)
    if name is None:
        return "the outcome"
    noun = "accuracy" if name == "accuracy/train" else "reward"
    series = chart.series(name)
    start = start_level(series)
    return noun if start is None else f"{noun} went from {start:.3g} to {series.level(RECENT):.3g}"
