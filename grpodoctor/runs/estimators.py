"""The few robust estimators that rules share.

All of them are cheap enough to run for every metric at every step: a window is short (`WINDOW`),
and a slope over 32 points costs some tens of microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import sub

import numpy as np
from numpy.typing import NDArray

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, under normality."""


@lru_cache(maxsize=256)
def _pairs(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    left, right = np.triu_indices(count, k=1)
    return left, right


def _median(values: NDArray[np.float64]) -> float:
    """`np.median` for a scratch array: a partial sort in place, without its call overhead."""
    middle = values.size // 2
    values.partition(middle)
    upper = float(values[middle])
    return upper if values.size % 2 else (float(values[:middle].max()) + upper) / 2


def _finite(values: Sequence[float]) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(array)
    return array[finite] if not finite.all() else array.copy()


def robust_slope(steps: Sequence[int], values: Sequence[float]) -> float:
    """Change per step: the median of the slopes of all pairs of points.

    Up to 29 % of the points may be arbitrarily wrong without the slope following them. Points that
    are not finite are left out.

    Args:
        steps: where the values were read, N of them.
        values: the values, N of them.

    Returns:
        The slope in units of the value per step; 0 where fewer than two points differ in step.

    Source: Theil 1950; Sen 1968, Journal of the American Statistical Association 63.
    """
    x = np.asarray(steps, dtype=np.float64)
    y = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(y)
    if not finite.all():
        x, y = x[finite], y[finite]
    left, right = _pairs(x.size)
    run = x[right] - x[left]
    rise = y[right] - y[left]
    if not run.all():
        run, rise = run[run != 0], rise[run != 0]
    return _median(rise / run) if run.size else 0.0


def robust_level(values: Sequence[float]) -> tuple[float, float]:
    """Median, and the median absolute deviation scaled to a standard deviation under normality.

    Values that are not finite are left out; of nothing, both are NaN.
    """
    array = _finite(values)
    if array.size == 0:
        return math.nan, math.nan
    level = _median(array)
    return level, MAD_TO_SIGMA * _median(np.abs(array - level))


def level_shift(before: Sequence[float], after: Sequence[float]) -> float:
    """How far the median moved, in standard errors of the difference of the two medians.

    The spread of a constant window is zero, so the larger spread of the two stands for both: one
    quiet window must not turn an ordinary step of the other into an infinite shift.

    Returns:
        Positive when `after` is higher. Infinite when two constant windows differ, 0 when they are
        equal, NaN when either has no finite value.
    """
    first, second = _finite(before), _finite(after)
    (level, spread), (shifted, shifted_spread) = robust_level(before), robust_level(after)
    if not (first.size and second.size):
        return math.nan
    widest = max(spread, shifted_spread)
    # A median of n normal values scatters by sqrt(pi / 2n) standard deviations.
    error = widest * math.sqrt(math.pi / 2 * (1 / first.size + 1 / second.size))
    moved = shifted - level
    if moved == 0:
        return 0.0
    return moved / error if error else math.copysign(math.inf, moved)


def step_noise(values: Sequence[float]) -> float:
    """Standard deviation of the noise of one reading, whatever the trend beneath it.

    From the mean absolute difference of successive readings, so that a level that moves steadily
    counts as trend and not as noise. Values that are not finite are left out; NaN under two values.

    Source: von Neumann, Kent, Bellinson and Hart 1941, The Mean Square Successive Difference; the
    factor is that of the mean absolute value of a normal difference.
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return math.nan
    jumps: float = sum(map(abs, map(sub, finite[1:], finite)))
    return jumps / (len(finite) - 1) * math.sqrt(math.pi) / 2
