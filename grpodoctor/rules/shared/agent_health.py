"""Whether a share of failures in agentic runs is being unlearned, or grows."""

from __future__ import annotations

from typing import Literal

from grpodoctor.rules.shared.health.run_health import RECENT, first_step_where
from grpodoctor.rules.shared.shapes.trend import change, start_level
from grpodoctor.runs.series import Series

Course = Literal["unlearned", "constant", "grown"]

UNLEARNED = 0.7
"""Share of the starting value below which the policy is unlearning the failures."""
FALLING_ERRORS = 2.0
"""Standard errors below the starting value that show the same sooner; one in forty constant shares
reaches that by chance."""
GROWN = 2.0
"""Multiple of the lowest level above which failures have come back or spread."""

_SMOOTHED = 5
"""Readings of the median that says whether failures last at present; see `first_step_where`."""


def course_of(series: Series) -> Course:
    """How the recent level of a share of failures compares with its start and its lowest level."""
    level, start = series.level(RECENT), start_level(series)
    lowest = min(each for each in (start, _lowest(series), level) if each is not None)
    if level > GROWN * lowest and level - lowest > 0.1:
        return "grown"
    fall, error = change(series)
    is_falling = fall < -FALLING_ERRORS * error
    is_low = start is not None and level < UNLEARNED * start
    return "unlearned" if is_low or is_falling else "constant"


def _lowest(series: Series) -> float | None:
    return series.lowest.level if series.lowest is not None else None


def share_onset(series: Series, level: float, floor: float) -> int:
    """The step since which a share of failures is high.

    High is above the middle between its lowest and its present level if it has grown. Failures that
    come and go are dated at the first of the latest twenty readings that is high.

    Args:
        series: the share.
        level: its present level.
        floor: the least share that counts as high.
    """
    known = (start_level(series), _lowest(series), level)
    lowest = min(each for each in known if each is not None)
    middle = (lowest + level) / 2 if level > GROWN * lowest else floor
    least = min(max(floor, middle), level)
    if series.level(_SMOOTHED) >= least:
        return first_step_where(series, lambda share: share >= least)
    latest = zip(series.steps(2 * RECENT), series.tail(2 * RECENT), strict=True)
    return int(next((step for step, share in latest if share >= least), series.last_step))
