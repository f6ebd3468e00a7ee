"""The recent readings of a run, from which remedies compute values and see whether they apply."""

from __future__ import annotations

from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series

_RECENT = 10
"""Readings whose median is the recent level of a metric."""

_MEAN_LENGTH, _MAX_LENGTH = "length/mean", "length/max"
_TRUNCATED = "length/truncated_rate"
_NEARLY_ALL = 0.95
"""Truncated share from which the mean length is the limit, to a few percent."""
_LEARNING_RATE = "optimizer/learning_rate"
"""A schedule lowers the rate, so the highest one of the run is used. Of the maximum length, it is
that of the kept readings: not every batch contains a response of that length."""

_RARE = ("clip/any_rate", "clip/high_rate", "clip/low_rate")
"""Metrics whose recent maximum is used: in most batches nothing is clipped."""


def recent_readings(chart: Chart) -> dict[str, float]:
    """The recent level of each metric of a run.

    Where the longest response is not logged, it is the longest mean, unless a part of the responses
    is known to be complete: the mean is then far below the longest.
    """
    series_by_name = {name: chart.series(name) for name in chart.names()}
    levels = {name: _level(name, series) for name, series in series_by_name.items() if len(series)}
    is_mixed = 0 < levels.get(_TRUNCATED, 0.0) < _NEARLY_ALL
    if _MEAN_LENGTH in levels and _MAX_LENGTH not in levels and not is_mixed:
        levels[_MAX_LENGTH] = _peak(series_by_name[_MEAN_LENGTH])
    return levels


def _level(name: str, series: Series) -> float:
    if name == _LEARNING_RATE:
        return _highest(series)
    if name == _MAX_LENGTH:
        return _peak(series)
    return max(series.tail(_RECENT)) if name in _RARE else series.level(_RECENT)


def _peak(series: Series) -> float:
    return max(series.tail(len(series)))


def _highest(series: Series) -> float:
    """The peak of the whole run, which the kept readings of a long one no longer contain."""
    peak = _peak(series)
    return peak if series.highest is None else max(peak, series.highest.level)
