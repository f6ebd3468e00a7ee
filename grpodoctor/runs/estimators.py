"""Robust estimators that rules share, cheap enough for every metric at every step."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice
from math import isfinite
from operator import sub

MAD_TO_SIGMA = 1.4826
"""Factor from the median absolute deviation to the standard deviation, under normality."""


def _median(ascending: Sequence[float]) -> float:
    middle = len(ascending) // 2
    if len(ascending) % 2:
        return ascending[middle]
    return (ascending[middle - 1] + ascending[middle]) / 2


def _finite(values: Sequence[float]) -> list[float]:
    """The finite values in ascending order."""
    # A finite sum saves looking at each value; windows of up to 128 readings need no arrays.
    return sorted(values if math.isfinite(sum(values)) else filter(math.isfinite, values))


def _finite_count(values: Sequence[float]) -> int:
    """The number of finite values."""
    return len(values) if isfinite(sum(values)) else sum(map(isfinite, values))


def median(values: Sequence[float]) -> float:
    """Median of the finite values; NaN if there are none."""
    # Written without the helpers: this function takes a tenth of the time of all rules.
    ascending = sorted(values if isfinite(sum(values)) else filter(isfinite, values))
    count = len(ascending)
    if not count:
        return math.nan
    middle = count >> 1
    return ascending[middle] if count & 1 else (ascending[middle - 1] + ascending[middle]) / 2


def robust_level(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the median absolute deviation scaled to a standard deviation.

    The scaling assumes normality. Values that are not finite are ignored; without finite values
    both are NaN.
    """
    finite = _finite(values)
    if not finite:
        return math.nan, math.nan
    level = _median(finite)
    return level, MAD_TO_SIGMA * _median(sorted([abs(value - level) for value in finite]))


def level_shift(before: Sequence[float], after: Sequence[float]) -> float:
    """Return how far the median moved, in standard errors of the difference of the two medians.

    The larger of the two spreads is used for both windows, since the spread of a constant window is
    zero and would make any change of the other window an infinite shift.

    Returns:
        Positive when `after` is higher. Infinite when two constant windows differ, 0 when they are
        equal, NaN when either has no finite value.
    """
    (level, spread), (shifted, shifted_spread) = robust_level(before), robust_level(after)
    if math.isnan(level) or math.isnan(shifted):
        return math.nan
    first, second = _finite_count(before), _finite_count(after)
    widest = max(spread, shifted_spread)
    # The median of n normal values has a standard error of sqrt(pi / 2n) standard deviations.
    error = widest * math.sqrt(math.pi / 2 * (1 / first + 1 / second))
    moved = shifted - level
    if moved == 0:
        return 0.0
    return moved / error if error else math.copysign(math.inf, moved)


def noise_of_distances(total: float, count: int) -> float:
    """Return the noise of one reading by the sum of `count` distances; see `step_noise`."""
    return total / count * math.sqrt(math.pi) / 2


def step_noise(values: Sequence[float]) -> float:
    """Return the standard deviation of the noise of one reading, independent of the trend.

    It is computed from the mean absolute difference of successive readings, so that a steady change
    counts as trend and not as noise. Values that are not finite are ignored; NaN below two values.

    Source: von Neumann, Kent, Bellinson and Hart 1941, The Mean Square Successive Difference; the
    factor converts the mean absolute value of a normal difference.
    """
    if len(values) < 2:
        return math.nan
    jumps: float = sum(map(abs, map(sub, islice(values, 1, None), values)))
    if math.isfinite(jumps):
        return noise_of_distances(jumps, len(values) - 1)
    finite = [value for value in values if math.isfinite(value)]
    # Differences of finite values may still overflow; their noise is infinite then.
    return step_noise(finite) if len(finite) < len(values) else math.inf


_MOST_IMPLIED = 2000
"""Largest count that shares imply; larger ones need more digits than logs have."""
_EXACT = 2e-7
"""Distance of a logged share from its fraction: float32 has seven digits."""


def implied_count(shares: Sequence[float]) -> int | None:
    """Return the smallest number of responses that gives all these shares; None if unknown.

    The true number may be a multiple. Shares that were rounded to few digits imply nothing.
    """
    from fractions import Fraction  # imports decimal, which few logs need

    count = 1
    for share in shares:
        if not 0 <= share <= 1:
            return None
        fraction = Fraction(share).limit_denominator(_MOST_IMPLIED)
        count = math.lcm(count, fraction.denominator)
        if abs(float(fraction) - share) > _EXACT or count > _MOST_IMPLIED:
            return None
    # Rounding to four digits makes thousands of every share, and to three digits hundreds.
    is_rounded = all(math.isclose(share * 1000, round(share * 1000)) for share in shares)
    return None if is_rounded else count


def least_count(shares: Sequence[float]) -> int:
    """Return the smallest number of responses that gives all these shares after rounding.

    The true number of a share of successes gives them as well, so it is at least this one. It is 1
    if they are no shares, or have more than three digits.
    """
    for digits in (1, 2, 3):
        scale = 10**digits
        if all(math.isclose(share * scale, round(share * scale)) for share in shares):
            break
    else:
        return 1
    if not all(0 <= share <= 1 for share in shares):
        return 1
    error = 0.5 / scale + _EXACT
    return next(
        count
        for count in range(1, scale + 1)
        if all(abs(round(share * count) / count - share) <= error for share in shares)
    )


class Trend:
    """The standard score of a monotonic trend in a growing series.

    It counts the pairs of values that rise and fall over time, so neither the shape of the trend
    nor outliers matter. Without a trend the score is about standard normal from ten values on.
    Equal values are corrected for.

    Source: Mann 1945 and Kendall 1975, the Mann-Kendall test.
    """

    __slots__ = ("_ascending", "_rises", "_ties")

    def __init__(self) -> None:
        self._ascending: list[float] = []
        self._rises = 0
        self._ties = 0

    def add(self, value: float) -> None:
        """Add the next value; it is ignored if it is not finite."""
        if not math.isfinite(value):
            return
        ascending = self._ascending
        first, last = bisect_left(ascending, value), bisect_right(ascending, value)
        self._rises += first + last - len(ascending)
        if same := last - first:
            # The sum over ties is of t (t - 1) (2 t + 5), and one of its t grows by one.
            self._ties += 6 * same * (same + 2)
        ascending.insert(last, value)

    @property
    def score(self) -> float:
        """Positive if later values are higher; NaN below three values, 0 if all are equal."""
        count = len(self._ascending)
        if count < 3:
            return math.nan
        variance = (count * (count - 1) * (2 * count + 5) - self._ties) / 18
        if not variance > 0 or not self._rises:
            return 0.0
        # The sum of discrete signs is compared with a continuous distribution.
        return (self._rises - math.copysign(1, self._rises)) / math.sqrt(variance)
