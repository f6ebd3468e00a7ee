"""Rows that were written out of the order of their steps, as an asynchronous writer does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.reading.rows.row_order import adds_to

MOST_SORTED = 20_000
"""Rows that are held back to sort them."""


class SortedRows(NamedTuple):
    """The rows of a log in the order of their steps."""

    order: Sequence[int]
    """The position of each row in the log."""
    moved: int
    """Rows that follow a row of a later step in the log."""


def sort_rows(rows: Sequence[LogRow]) -> SortedRows | None:
    """Sort the rows of a log by step.

    None if they are in order, or if a step occurs again: then a resumed job wrote them.
    """
    moved = rows_behind(rows)
    if not moved or _has_repeated_step(rows):
        return None
    places = sorted(range(len(rows)), key=lambda place: rows[place].step or 0)
    return SortedRows(places, moved)


def rows_behind(rows: Iterable[LogRow]) -> int:
    """Rows that follow a later step, and are not further rows of a step that occurred before."""
    latest: dict[str, int] = {}
    known = set[tuple[str, int]]()
    behind = 0
    for row in rows:
        if row.step is None:
            continue
        last = latest.get(row.counter, row.step)
        behind += row.step < last and (row.counter, row.step) not in known
        known.add((row.counter, row.step))
        latest[row.counter] = max(row.step, last)
    return behind


def _has_repeated_step(rows: Iterable[LogRow]) -> bool:
    """Whether a step occurs again, other than by a row with other metrics of the same step."""
    known: dict[tuple[str, int | None], Set[str]] = {}
    for row in rows:
        place = (row.counter, row.step)
        keys = known.get(place)
        if row.step is None or (keys is not None and not adds_to(keys, row.values)):
            return True
        known[place] = _joined(keys, row.values)
    return False


def _joined(keys: Set[str] | None, values: Mapping[str, float]) -> Set[str]:
    return values.keys() if keys is None else keys | values.keys()
