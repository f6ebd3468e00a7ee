"""Curves as moving means, so that a trend is visible under the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from grpodoctor.monitor.downsampled_series import MeanPoint, SeriesByMetric
from grpodoctor.report.run.panels import Line, Panel


def with_moving_means(
    panels: Sequence[Panel], series: Sequence[SeriesByMetric], window: int
) -> tuple[Panel, ...]:
    """The panels with the moving mean of each curve.

    Args:
        panels: the panels.
        series: where the readings are; the first one that has a metric counts.
        window: number of steps in a mean, half of them on either side.
    """
    return tuple(
        replace(panel, lines=tuple(_with_mean(line, series, window) for line in panel.lines))
        for panel in panels
    )


def _with_mean(line: Line, series: Sequence[SeriesByMetric], window: int) -> Line:
    found = (each.means(line.curve.metric) for each in series)
    return replace(line, means=moving_mean(next(filter(None, found), []), window))


def moving_mean(points: Sequence[MeanPoint], window: int) -> tuple[tuple[float, float], ...]:
    """Steps and means over the readings of the steps around them.

    Args:
        points: consecutive readings, by step.
        window: number of steps; at both ends of the run, a mean takes what there is.
    """
    if not points:
        return ()
    steps, totals, counts = (np.array(each, float) for each in zip(*points, strict=True))
    first = np.searchsorted(steps, steps - window / 2, side="left")
    last = np.searchsorted(steps, steps + window / 2, side="right")
    sums, numbers = (np.concatenate(([0.0], np.cumsum(each))) for each in (totals, counts))
    means = (sums[last] - sums[first]) / (numbers[last] - numbers[first])
    return tuple(zip(steps.tolist(), means.tolist(), strict=True))
