"""Jumps of a metric within a single reading."""

from __future__ import annotations

from typing import NamedTuple

from grpodoctor.runs.chart import Series

LASTING = 3
"""Readings for which the new level must last; a single outlier is no jump."""
BEFORE = 10
"""Readings before a jump that make the old level."""


class Jump(NamedTuple):
    """A rise within one reading that lasts."""

    step: int
    """The first step of the new level."""
    previous_step: int
    """The last step of the old level."""
    before: float
    """The highest of the readings before."""
    after: float
    """The lowest of the readings after."""


def latest_jump(series: Series, factor: float, floor: float) -> Jump | None:
    """The latest jump by a factor, if the readings since then have stayed above the old level.

    Args:
        series: the metric.
        factor: how many times the highest earlier reading the new level is at least.
        floor: a level below which rises do not matter.
    """
    if series.last < floor:
        return None
    steps, values = zip(*series, strict=True)
    for place in range(len(values) - LASTING, 1, -1):
        after = min(values[place : place + LASTING])
        if after < floor or values[place - 1] >= after / factor:
            continue
        before = max(values[max(0, place - BEFORE) : place])
        if after >= factor * max(before, floor / 10) and series.level(5) >= factor * before:
            return Jump(steps[place], steps[place - 1], before, after)
    return None
