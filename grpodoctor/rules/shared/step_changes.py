"""How two metrics change together from step to step: any two trends correlate, changes do not."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from typing import NamedTuple

from grpodoctor.runs.chart import Series


class StepChanges(NamedTuple):
    """The relation between the changes of two metrics."""

    correlation: float
    slope: float
    """Change of the second metric per change of the first."""
    opposed: float
    """Share of steps in which the two move in opposite directions."""


def step_changes(first: Series, second: Series, readings: int) -> StepChanges | None:
    """Compare the changes over the latest common readings; None if there are fewer, or no changes.

    Args:
        first: the metric that may drive the other.
        second: the metric that may follow.
        readings: number of readings to compare.
    """
    columns = dict(first), dict(second)
    steps = sorted(columns[0].keys() & columns[1].keys())[-readings:]
    if len(steps) < readings:
        return None
    moves = [
        [column[after] - column[before] for before, after in pairwise(steps)] for column in columns
    ]
    if any(not all(map(math.isfinite, move)) or min(move) == max(move) for move in moves):
        return None
    return StepChanges(
        statistics.correlation(*moves),
        statistics.linear_regression(*moves).slope,
        statistics.fmean(one * other < 0 for one, other in zip(*moves, strict=True)),
    )
