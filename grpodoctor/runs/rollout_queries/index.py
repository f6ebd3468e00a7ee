"""All responses of a run as a table of figures, to be filtered, ordered and paged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from threading import RLock
from typing import TYPE_CHECKING, Any

from grpodoctor.errors import RunError
from grpodoctor.runs.rollout_queries.figures import (
    NUMBERS,
    Rollout,
    RolloutParts,
    figures_schema,
)
from grpodoctor.support.arrays import np

if TYPE_CHECKING:
    import pyarrow as pa

_IDENTITY = ("step", "sequence_id")

Bounds = tuple[float | None, float | None]
"""Lowest and highest value; None for no bound."""


@dataclass(frozen=True, slots=True)
class RolloutQuery:
    """The responses to list, and their order."""

    steps: tuple[int, int] | None = None
    correct: bool | None = None
    truncated: bool | None = None
    bounds: tuple[tuple[str, Bounds], ...] = ()
    """Bounds of columns; a response whose value is unknown is not listed."""
    text: str = ""
    """Part of the prompt or of the response, in any case."""
    order: str = "step"
    is_descending: bool = False


@dataclass(frozen=True, slots=True)
class RolloutPage:
    """Some of the responses that a query lists."""

    total: int
    """Number of responses that the query lists."""
    figures: tuple[Rollout, ...] = ()
    """The figures of the responses on the page."""


@dataclass
class RolloutIndex:
    """The figures of all responses; texts are read for single responses only.

    Args:
        parts: the files of the responses.
    """

    parts: RolloutParts
    unreadable: dict[Hashable, str] = field(default_factory=dict)
    """Parts that could not be read, with the reason."""
    _tables: dict[Hashable, pa.Table] = field(default_factory=dict)
    _table: pa.Table | None = None
    _keys: list[Hashable] = field(default_factory=list)
    _hits: dict[tuple[Hashable, str], set[int]] = field(default_factory=dict)
    """Rows with the text that was searched last."""
    _lock: RLock = field(default_factory=RLock)
    """Several browsers share an index."""
    _others: dict[tuple[int, str], list[tuple[int, int]]] = field(default_factory=dict)
    """Further parts and rows of responses that are in several files."""

    def refresh(self) -> None:
        """Read the figures of parts that are new or have changed."""
        with self._lock:
            keys = list(self.parts.keys())
            if keys != self._keys or self._table is None:
                self._read(keys)

    def _read(self, keys: list[Hashable]) -> None:
        self._keys = keys
        self.unreadable = {key: why for key, why in self.unreadable.items() if key in set(keys)}
        known = {key: self._tables[key] for key in keys if key in self._tables}
        for key in keys:
            if key not in known and key not in self.unreadable:
                try:
                    known[key] = self.parts.figures(key)
                except RunError as error:
                    self.unreadable[key] = str(error)
        self._tables = known
        self._table = self._joined()

    def _joined(self) -> pa.Table:
        """All figures, with the number of the part and of the row in it."""
        import pyarrow as pa

        numbered = [
            _numbered(self._tables[key], number)
            for number, key in enumerate(self._keys)
            if key in self._tables
        ]
        empty = _numbered(figures_schema().empty_table(), 0)
        table = pa.concat_tables([empty, *numbered]).combine_chunks()
        self._others, joined = _joined_twins(table)
        return joined

    @property
    def table(self) -> pa.Table:
        """The figures of all responses."""
        if self._table is None:
            self.refresh()
        assert self._table is not None  # noqa: S101 - refresh sets it
        return self._table

    @property
    def known_columns(self) -> tuple[str, ...]:
        """The columns with a value for at least one response."""
        table = self.table
        return tuple(
            name for name in table.schema.names if table.column(name).null_count < table.num_rows
        )

    def select(self, query: RolloutQuery) -> pa.Table:
        """The figures of the responses that a query lists, in order."""
        import pyarrow.compute as pc

        table = self.table
        for column, (low, high) in _bounds(query):
            values = table.column(column)
            if low is not None:
                table = table.filter(pc.greater_equal(values, low))
                values = table.column(column)
            if high is not None:
                table = table.filter(pc.less_equal(values, high))
        for name in ("correct", "truncated"):
            if (wanted := getattr(query, name)) is not None:
                table = table.filter(pc.equal(table.column(name), wanted))
        if query.text.strip():
            table = self._with_text(table, query.text.strip())
        direction = "descending" if query.is_descending else "ascending"
        others = [(name, "ascending") for name in ("step", "part", "row") if name != query.order]
        keys = [(query.order, direction), *others]
        return table.take(pc.sort_indices(table, sort_keys=keys))

    def _with_text(self, table: pa.Table, text: str) -> pa.Table:
        """The responses with a text; parts without other candidates are not searched."""
        import pyarrow as pa

        parts, rows = (table.column(name).to_pylist() for name in ("part", "row"))
        with self._lock:
            if not any(searched == text for _, searched in self._hits):
                self._hits.clear()
            hits = {part: self._rows_with_text(self._keys[part], text) for part in set(parts)}
        has_text = [row in hits[part] for part, row in zip(parts, rows, strict=True)]
        return table.filter(pa.array(has_text, pa.bool_()))

    def _rows_with_text(self, key: Hashable, text: str) -> set[int]:
        if (key, text) not in self._hits:
            self._hits[key, text] = self.parts.rows_with_text(key, text)
        return self._hits[key, text]

    def page(self, query: RolloutQuery, number: int, size: int) -> RolloutPage:
        """One page of a query's responses.

        Args:
            query: the query.
            number: number of the page, from 0.
            size: responses per page.
        """
        selected = self.select(query)
        rows = selected.slice(number * size, size).to_pylist()
        return RolloutPage(selected.num_rows, tuple(rows))

    def find(self, sequence_id: str, step: int | None = None) -> Rollout | None:
        """The figures of a response by its id; None if it was not recorded.

        Args:
            sequence_id: the id.
            step: its step, if ids may repeat.
        """
        import pyarrow.compute as pc

        table = self.table.filter(pc.equal(self.table.column("sequence_id"), sequence_id))
        if step is not None:
            table = table.filter(pc.equal(table.column("step"), step))
        found = table.slice(0, 1).to_pylist()
        return found[0] if found else None

    def group(self, figures: Rollout) -> list[Rollout]:
        """The figures of all responses to the same prompt in the same step."""
        import pyarrow.compute as pc

        if figures["group_id"] is None:
            return [figures]
        table = self.table.filter(pc.equal(self.table.column("step"), figures["step"]))
        table = table.filter(pc.equal(table.column("group_id"), figures["group_id"]))
        rows: list[Rollout] = table.to_pylist()
        return rows

    def in_full(self, figures: Iterable[Rollout], *, with_tokens: bool = True) -> list[Rollout]:
        """Responses with texts and per-token columns; without those that can no longer be read.

        Args:
            figures: the figures of the responses.
            with_tokens: whether the per-token columns are needed.
        """
        wanted = list(figures)
        places = [self._places(each) for each in wanted]
        rows: defaultdict[int, set[int]] = defaultdict(set)
        for part, row in chain.from_iterable(places):
            rows[part].add(row)
        read = {
            (part, row): rollout
            for part, some in rows.items()
            for row, rollout in self.parts.rollouts(
                self._keys[part], sorted(some), with_tokens=with_tokens
            ).items()
        }
        return [
            _merged([*(read[place] for place in here if place in read), each])
            for each, here in zip(wanted, places, strict=True)
            if here[0] in read
        ]

    def _places(self, figures: Rollout) -> list[tuple[int, int]]:
        """The parts and rows of a response."""
        others = self._others.get((figures["step"], figures["sequence_id"]), [])
        return [(figures["part"], figures["row"]), *others]

    def range_of(self, column: str) -> tuple[float, float] | None:
        """The smallest and the largest known value of a column; None if there is none."""
        import pyarrow.compute as pc

        ends = pc.min_max(self.table.column(column)).as_py()
        return None if ends["min"] is None else (ends["min"], ends["max"])

    def steps(self) -> Sequence[int]:
        """The steps with responses, ascending."""
        return sorted(set(self.table.column("step").to_pylist()))


def _numbered(table: pa.Table, part: int) -> pa.Table:
    import pyarrow as pa

    parts = pa.array(np.full(table.num_rows, part, np.int32))
    rows = pa.array(np.arange(table.num_rows, dtype=np.int32))
    return table.append_column("part", parts).append_column("row", rows)


def _joined_twins(table: pa.Table) -> tuple[dict[tuple[int, str], list[tuple[int, int]]], pa.Table]:
    """One row for a response that is in several files, such as its text and its tokens.

    Returns:
        The further places of such responses, and the table.
    """
    names = [name for name in table.schema.names if name not in _IDENTITY]
    groups = table.group_by(list(_IDENTITY), use_threads=False)
    joined = groups.aggregate([(name, "first") for name in names])
    if joined.num_rows == table.num_rows:
        return {}, table
    places: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    columns = (table.column(name).to_pylist() for name in (*_IDENTITY, "part", "row"))
    for step, sequence_id, part, row in zip(*columns, strict=True):
        places[step, sequence_id].append((part, row))
    others = {response: found[1:] for response, found in places.items() if len(found) > 1}
    renamed = joined.rename_columns([*_IDENTITY, *names])
    return others, renamed.select(table.schema.names).cast(table.schema).combine_chunks()


def _merged(rollouts: Iterable[Rollout]) -> Rollout:
    """All that is known about a response."""
    merged: Rollout = {}
    for rollout in rollouts:
        merged |= {
            name: value
            for name, value in rollout.items()
            if value not in (None, {}) or name not in merged
        }
    return merged


def _bounds(query: RolloutQuery) -> list[tuple[str, tuple[Any, Any]]]:
    steps = [("step", query.steps)] if query.steps else []
    return [*steps, *((name, ends) for name, ends in query.bounds if name in NUMBERS)]
