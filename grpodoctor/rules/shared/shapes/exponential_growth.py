"""Whether a metric grows exponentially, as under positive feedback, and not as in a random walk."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from typing import NamedTuple

from grpodoctor.runs.series import WINDOW, Series

_SMOOTHED = 5
"""Readings whose median is the level at a point."""
_MIN_READINGS = 30
"""Fewest readings: seven between each two of three points in their second half."""
_MIN_EXPONENT = 4.0
"""Local exponent of a power of the step that the growth must exceed. The divergence of a policy
that diffuses grows with the step, that of one that drifts with its square, and during a linear
warm-up of the learning rate with the third and the fourth power."""
_MOST_UNEQUAL = 2.0
"""Ratio of the rates before and after the middle point: an exponential has one rate, a jump that
ends has two."""


class Growth(NamedTuple):
    """Exponential growth."""

    since: int
    """First step of the readings that show it."""
    rate: float
    """Growth of the logarithm per step."""

    @property
    def doubling(self) -> float:
        """Steps in which the metric doubles."""
        return math.log(2) / self.rate


def exponential_growth(series: Series) -> Growth | None:
    """The exponential growth over the latest readings; None if it is slower, or not steady."""
    steps, values = series.steps(WINDOW), series.tail(WINDOW)
    if len(values) < _MIN_READINGS or min(values) <= 0 or not math.isfinite(sum(values)):
        return None
    ends = (len(values) // 2, 3 * len(values) // 4, len(values))
    at = [statistics.median(steps[end - _SMOOTHED : end]) for end in ends]
    levels = [statistics.median(values[end - _SMOOTHED : end]) for end in ends]
    if not 0 < at[0] < at[1] < at[2]:
        return None
    rises = [math.log(after / before) for before, after in pairwise(levels)]
    spans = [after - before for before, after in pairwise(at)]
    powers = [math.log(after / before) for before, after in pairwise(at)]
    if any(rise < _MIN_EXPONENT * power for rise, power in zip(rises, powers, strict=True)):
        return None
    rates = [rise / span for rise, span in zip(rises, spans, strict=True)]
    if max(rates) > _MOST_UNEQUAL * min(rates):
        return None
    return Growth(steps[0], sum(rises) / sum(spans))
