"""Whether a share of failures in agentic runs is being unlearned, or grows."""

from __future__ import annotations

from typing import Literal

from grpodoctor.rules.shared.run_health import RECENT
from grpodoctor.rules.shared.trend import change, start_level
from grpodoctor.runs.chart import Series

Course = Literal["unlearned", "constant", "grown"]

UNLEARNED = 0.7
"""Share of the starting value below which the policy is unlearning the failures."""
FALLING_ERRORS = 2.0
"""Standard errors below the starting value that show the same sooner; one in forty constant shares
reaches that by chance."""
GROWN = 2.0
"""Multiple of the lowest level above which failures have come back or spread."""


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
