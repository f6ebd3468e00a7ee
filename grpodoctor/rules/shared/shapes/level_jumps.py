"""Levels that one reading changed, and that stayed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from grpodoctor.runs.estimators import step_noise
from grpodoctor.runs.series import WINDOW, Series, once_per_reading

BEFORE = 20
"""Readings before a jump, which show the noise of one."""
NEARBY = 5
"""Readings that make the level on each side, all of them beyond all on the other side."""
_AT_ONCE = 0.6
"""Share of the whole change that one reading takes; see REW016."""


def is_apart(series: Series, side: int) -> bool:
    """Whether the latest readings are all above, or all below, as many before them."""
    values = series.tail(2 * side)
    if len(values) < 2 * side:
        return False
    first, last = values[0], values[-1]
    if (last > first) is (values[side] < values[side - 1]):
        return False  # without a look at all of them
    nearby, latest = values[:side], values[side:]
    if min(nearby) <= last <= max(nearby):
        return False
    return max(latest) < min(nearby) or min(latest) > max(nearby)


_TRIED = 5
"""Changes that are tried: single outliers are no lasting ones."""
_NOTABLE, _LARGE = 3.0, 5.0
"""Noises of one reading that a change must reach: of the whole window, in which other changes
count, and of the readings before it. Chance makes the largest one three."""


@once_per_reading
def largest_jump(series: Series) -> tuple[int, tuple[float, float]] | None:
    """The largest change from one reading to the next in the window that made a lasting one.

    Returns:
        Readings since it, itself included, and the levels before and after it; None without one.
    """
    if len(series) < BEFORE + NEARBY:
        return None
    changes = series.distances()[BEFORE - 1 :]
    least = _NOTABLE * series.noise(WINDOW)
    if max(changes) < least:
        return None  # the usual case, before the readings are copied
    values = series.tail(WINDOW)
    if not math.isfinite(sum(values)):
        return None
    for change in sorted(changes, reverse=True)[:_TRIED]:
        at = BEFORE + changes.index(change)
        if change >= least and len(values) - at >= NEARBY:
            levels = level_jump(values, at, _LARGE)
            if levels is not None:
                return len(values) - at, levels
    return None


def level_jump(values: Sequence[float], at: int, noises: float) -> tuple[float, float] | None:
    """The levels before and after a reading that made a lasting change; None if it made none.

    Args:
        values: readings, oldest first, `BEFORE` or more before that one, `NEARBY` or more from it.
        at: the index of the reading.
        noises: noises of one reading that its change must reach.
    """
    earlier, later = values[at - BEFORE : at], values[at : at + NEARBY]
    nearby = earlier[-NEARBY:]
    if not math.isfinite(sum(earlier) + sum(later)):
        return None
    if max(later) >= min(nearby) and min(later) <= max(nearby):
        return None
    old, new = statistics.median(nearby), statistics.median(later)
    jump = later[0] - nearby[-1]
    if abs(jump) < noises * step_noise(earlier) or jump * (new - old) <= 0:
        return None
    return (old, new) if abs(jump) >= _AT_ONCE * abs(new - old) else None
