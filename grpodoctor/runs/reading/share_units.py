"""The unit of a key that its name does not tell: a share, a percentage or a count."""

from __future__ import annotations

from collections.abc import Sequence

from grpodoctor.runs.log_formats.base import LogRow

_HUNDRED = 100.0
_MIN_ROWS = 5
"""Rows that must have the key: one value above 1 may be a mistake."""
_MIN_BEYOND = 2
"""Values that must exceed 1, for the same reason."""
_MOST = 0.5
"""Share of the values other than 0 that exceed 1 if they are percentages."""


def counts_and_percentages(rows: Sequence[LogRow]) -> tuple[list[str], list[str]]:
    """Keys whose values are whole numbers beyond 1, and those of numbers from 0 to 100.

    A single value of 0 or 1 may be any of the three, so all values of a key count together.
    """
    values: dict[str, list[float]] = {}
    for row in rows:
        for key, value in row.values.items():
            values.setdefault(key, []).append(value)
    counts, percentages = [], []
    for key, each in values.items():
        beyond = sum(value > 1 for value in each)
        if len(each) < _MIN_ROWS or beyond < _MIN_BEYOND:
            continue
        if all(float(value).is_integer() for value in each):
            counts.append(key)
        elif beyond >= _MOST * sum(value != 0 for value in each) and _is_within(each):
            percentages.append(key)
    return counts, percentages


def _is_within(values: Sequence[float]) -> bool:
    return min(values) >= 0 and max(values) <= _HUNDRED
