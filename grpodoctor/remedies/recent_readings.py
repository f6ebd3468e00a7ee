"""The recent readings of a run, from which remedies compute values and see whether they apply."""

from __future__ import annotations

from grpodoctor.runs.chart import Chart

_RECENT = 10
"""Readings whose median is the recent level of a metric."""

_PEAKS = ("optimizer/learning_rate", "length/max")
"""Metrics whose maximum is used: a schedule lowers the rate, and not every batch contains a
response of the maximum length."""


def recent_readings(chart: Chart) -> dict[str, float]:
    """The recent level of each metric of a run."""
    series_by_name = {name: chart.series(name) for name in chart.names()}
    return {
        name: max(series.tail(len(series))) if name in _PEAKS else series.level(_RECENT)
        for name, series in series_by_name.items()
        if len(series)
    }
