"""The changes of two metrics agree in direction, whatever shortcut decides it."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.rules.shared.shapes.step_changes import step_changes
from grpodoctor.runs.series import Series


def series_of(values: list[int]) -> Series:
    series = Series()
    for step, value in enumerate(values):
        series.append(step, float(value))
    return series


def moves_of(values: list[int]) -> list[int]:
    return [after - before for before, after in pairwise(values)]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(-3, 3)), min_size=4, max_size=12))
def test_three_quarters_of_the_steps_must_have_one_relation(
    pairs: list[tuple[int, int]],
) -> None:
    """Steps without a change count for neither relation."""
    first, second = [one for one, _ in pairs], [other for _, other in pairs]
    products = [a * b for a, b in zip(moves_of(first), moves_of(second), strict=True)]
    agreeing = max(sum(each > 0 for each in products), sum(each < 0 for each in products))
    found = step_changes(series_of(first), series_of(second), len(pairs))
    constant = any(len(set(moves_of(column))) == 1 for column in (first, second))
    assert (found is not None) == (agreeing >= 0.75 * len(products) and not constant)
    if found is not None:
        expected = statistics.linear_regression(moves_of(first), moves_of(second)).slope
        assert found.slope == pytest.approx(expected)
