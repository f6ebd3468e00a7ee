"""Whether a log's measure of success belongs to the responses that were rewarded."""

from __future__ import annotations

from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series, once_per_reading

_FULL_MARK = 1.0
"""Reward that some response of every batch earns at least."""

_ABOVE_MEAN = 1.5
"""Best reward of a batch as a multiple of the mean. Partial credit that most responses have learned
leaves both about equal: .200 and .199 in a public run that never solved its task."""

_READINGS = 10
"""Readings that make the current level."""


def accuracy_is_contradicted(chart: Chart, accuracy: Series) -> bool:
    """Whether an accuracy is 0 although some response earns far more than the others.

    A share that is computed in integers, or with a threshold that no reward reaches, is 0 in every
    reading. The best reward of each batch shows that a few responses achieve what most do not.
    """
    if accuracy.last or not _is_always_zero(accuracy):
        return False
    best, reward = chart.series("reward/max"), chart.series("reward/mean")
    if len(best) < _READINGS or len(reward) < _READINGS:
        return False
    lowest = min(best.tail(_READINGS))
    return lowest >= _FULL_MARK and lowest >= _ABOVE_MEAN * reward.level(_READINGS)


@once_per_reading
def _is_always_zero(series: Series) -> bool:
    levels = (series.opening, series.highest, series.lowest)
    return not any(value for _, value in series) and not any(
        level is not None and level.level for level in levels
    )
