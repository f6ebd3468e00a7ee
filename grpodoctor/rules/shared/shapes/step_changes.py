"""How two metrics change together from step to step: any two trends correlate, changes do not."""

from __future__ import annotations

import math
import statistics
from itertools import islice, repeat
from operator import gt, lt, mul, ne, sub
from typing import NamedTuple

from grpodoctor.runs.series import Series

_CONSISTENT = 0.75
"""Share of steps in which the two move in the same direction, or in opposite ones, so that a single
spike is not enough: chance gives it in one of 150 pairs of 30 readings."""


class StepChanges(NamedTuple):
    """The relation between the changes of two metrics."""

    correlation: float
    slope: float
    """Change of the second metric per change of the first."""


def step_changes(
    first: Series, second: Series, readings: int, *, relative: bool = False
) -> StepChanges | None:
    """Compare the changes over the latest common readings.

    None if there are fewer, or if the directions of the changes do not agree.

    Args:
        first: the metric that may drive the other.
        second: the metric that may follow.
        readings: number of readings to compare.
        relative: whether the relative change of the first counts, for positive readings.
    """
    if not may_follow(first, second, readings):
        return None  # the usual case
    columns = _latest(first, second, readings)
    if relative and not min(columns[0]) > 0:
        return None
    if relative:
        columns = ([math.log(value) for value in columns[0]], columns[1])
    moves = [list(map(sub, islice(column, 1, None), column)) for column in columns]
    products = list(map(mul, *moves))
    opposed, along = sum(map(lt, products, repeat(0.0))), sum(map(gt, products, repeat(0.0)))
    if max(opposed, along) < _CONSISTENT * len(products):
        return None
    if any(not all(map(math.isfinite, move)) or min(move) == max(move) for move in moves):
        return None
    slope = statistics.linear_regression(*moves).slope
    return StepChanges(statistics.correlation(*moves), slope)


def may_follow(first: Series, second: Series, readings: int) -> bool:
    """Whether `step_changes` may find a relation: the directions of the changes may agree."""
    steps = first.steps(readings)
    if steps == second.steps(readings):  # the usual case
        count = len(steps) - 1
        opposed = (first.rises(count) ^ second.rises(count)).bit_count() if steps else 0
    else:
        columns = _latest(first, second, readings)
        rises, others = (map(lt, column, islice(column, 1, None)) for column in columns)
        count = len(columns[0]) - 1
        opposed = sum(map(ne, rises, others))
    # Exact without ties, which count for either side.
    most = (1 - _CONSISTENT) * count
    return count >= readings - 1 and (opposed <= most or count - opposed <= most)


def _latest(first: Series, second: Series, readings: int) -> tuple[list[float], list[float]]:
    """The latest readings of both at common steps."""
    if first.steps(readings) == second.steps(readings):  # the usual case
        return first.tail(readings), second.tail(readings)
    one, other = dict(first), dict(second)
    steps = sorted(one.keys() & other.keys())[-readings:]
    return [one[step] for step in steps], [other[step] for step in steps]
