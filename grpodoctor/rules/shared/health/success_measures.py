"""Whether a log's measure of success belongs to the rewarded responses, and is a share at all."""

from __future__ import annotations

import statistics

from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series, once_per_reading

_FULL_MARK = 1.0
"""Reward that some response of every batch earns at least."""

_ABOVE_MEAN = 1.5
"""Best reward of a batch as a multiple of the mean. Partial credit that most responses have learned
leaves both about equal: .200 and .199 in a public run that never solved its task."""

_READINGS = 10
"""Readings that make the current level."""

_MOST_RESPONSES = 16_384
"""Responses of the largest batches in use: 1,024 prompts with 16 responses each."""


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


def may_be_success_share(chart: Chart, series: Series) -> bool:
    """Whether a reward near 0 may be the share of responses that earn 1.

    A share p of n responses scatters by a variance of at least p (1 - p) / n from batch to batch,
    also where the prompts differ, and takes one of n + 1 values. A mean of many small rewards
    scatters less, or takes more values, than in any batch in use. A batch without a success and a
    highest reward of 0 or 1 in each batch show a share.

    Args:
        chart: the run.
        series: a mean reward in [0, 1].
    """
    values = series.tail(WINDOW)
    highest = chart.series("reward/max").tail(WINDOW)
    if 0 in values or (highest and set(highest) <= {0.0, 1.0}):
        return True
    mean, noise = statistics.fmean(values), series.noise(WINDOW)
    is_scattered = noise * noise * _MOST_RESPONSES >= mean * (1 - mean)
    shares = (max(values) - min(values)) * _MOST_RESPONSES + 1
    return is_scattered and len(set(values)) <= shares
