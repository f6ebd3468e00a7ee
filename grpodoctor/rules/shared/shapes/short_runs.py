"""Falls in runs that are too short for levels of ten readings."""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

from grpodoctor.runs.estimators import step_noise
from grpodoctor.runs.series import OPENING, Series


class ShortFall(NamedTuple):
    """A fall of the outcome from its best level of three readings."""

    best: float
    level: float
    step: int
    """The first step after the best level."""


class ShortRun(NamedTuple):
    """What counts as a fall in a short run. REW015 gives the reasons."""

    min_readings: int = 8
    max_readings: int = 40
    min_loss: float = 0.25
    """Share of the best level that is lost."""
    min_errors: float = 4.0
    """Standard errors by which three readings are below the best three."""
    max_noise: float = 0.1
    """Largest noise of one reading, as a share of the best level."""


USUAL = ShortRun()
"""What counts unless a project's settings differ."""


def fall_in_short_run(series: Series, bounds: ShortRun = USUAL) -> ShortFall | None:
    """The fall of the latest three readings below the best three in a row before them.

    Args:
        series: the outcome.
        bounds: what counts as a fall.

    Returns:
        The fall; None if it is small, or if the run is not short.
    """
    if not bounds.min_readings <= len(series) < bounds.max_readings:
        return None
    pairs = [(step, value) for step, value in series if math.isfinite(value)]
    values = [value for _, value in pairs]
    before = values[:-OPENING]
    starts = range(len(before) - OPENING + 1)
    if not starts or not min(values) >= 0:
        return None  # on a scale with negative values, a share of the best level means nothing
    best, place = max((statistics.fmean(before[i : i + OPENING]), i) for i in starts)
    level = statistics.fmean(values[-OPENING:])
    noise = step_noise(before)
    error = noise * math.sqrt(2 / OPENING)
    if not best - level > max(bounds.min_errors * error, bounds.min_loss * best):
        return None
    if noise > bounds.max_noise * best:
        return None
    if not max(values[-OPENING:]) < statistics.median(before):
        return None  # a single low reading
    return ShortFall(best, level, pairs[place + OPENING][0])
