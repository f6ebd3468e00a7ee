"""The course of a metric over the whole run: slow rises show only there, as does a lack of any."""

from __future__ import annotations

import math

from grpodoctor.runs.series import Series, once_per_reading

MIN_TREND_SCORE = 2.5
"""Standard score from which a trend over the whole run counts: chance gives it to one series
without a trend in 160, and a run has up to four outcomes."""

PARTS = 4
"""Equal parts of a run; the first is compared with the last."""

_MIN_TREND_VALUES = 10
"""Values from which the score is about normal."""


@once_per_reading
def quarter_means(series: Series) -> tuple[float, float]:
    """The means of the first and of the last quarter of the whole run; NaN for a short run."""
    values = series.whole_run()
    size = len(values) // PARTS
    if not size:
        return math.nan, math.nan
    return sum(values[:size]) / size, sum(values[-size:]) / size


def rises_over_run(series: Series) -> bool:
    """Whether a metric rises slowly over the whole run, and has kept what it gained.

    A few first readings are a noisy start. A slow rise of a noisy metric shows only in all readings
    together: the trend test counts in how many pairs of readings the later one is higher.
    """
    return _moves_over_run(series, 1)


def falls_over_run(series: Series) -> bool:
    """Whether a metric falls slowly over the whole run, and has stayed lower."""
    return _moves_over_run(series, -1)


def _moves_over_run(series: Series, sign: int) -> bool:
    if len(series) < _MIN_TREND_VALUES or not sign * series.trend >= MIN_TREND_SCORE:
        return False
    first, last = quarter_means(series)
    recent = series.tail(max(_MIN_TREND_VALUES, len(series) // PARTS))
    latest = [value for value in recent if math.isfinite(value)]
    middle = (first + last) / 2
    return bool(latest) and sign * (sum(latest) / len(latest) - middle) > 0


@once_per_reading
def never_moved(series: Series) -> bool:
    """Whether all readings in the window and all kept earlier levels are the same value."""
    # Most series fail the first comparison, which saves reading the window.
    if len(set(series.tail(2))) != 1 or (series.baseline and series.baseline.spread):
        return False
    if len({value for _, value in series}) != 1:
        return False
    levels = (series.opening, series.highest, series.lowest)
    return all(extreme is None or extreme.level == series.last for extreme in levels)
