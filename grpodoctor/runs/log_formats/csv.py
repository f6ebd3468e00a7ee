"""Comma-separated values with a header, such as a spreadsheet or a W&B export."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.json_rows import RowDecoder
from grpodoctor.runs.log_formats.decoding.labelled_columns import labels_of_runs
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.files.growing_files import Chunk, Tail
from grpodoctor.support.numbers import count_of

_DELIMITERS = (",", "\t", ";")
_LONGEST_HEADER = 1_000_000
_LONGEST_ROW = 1_000_000
"""Characters of a row whose cells have line breaks."""
_MOST_RUNS = 128
"""Runs of a table that are read."""
_EXTREMES = ("__MIN", "__MAX")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
_DECIMAL_POINT = re.compile(r"[+-]?\d+\.\d+(?:[eE][+-]?\d+)?")
_PROGRESS = re.compile(r"(?:train/)?(?:global)?_?(?:step|iter|iteration|epoch|episode|update)s?")
"""Columns that tell where in a run a row is."""
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


def _decimal_mark(field: str) -> str:
    """The decimal mark of a number; empty if it shows none, as `1,234` does not."""
    number = field.strip()
    if _DECIMAL_POINT.fullmatch(number):
        return "."
    return "," if _DECIMAL_COMMA.fullmatch(number) and not _THOUSANDS.fullmatch(number) else ""


class CommaSeparated:
    """Reads a growing table with one row per step.

    A quoted cell may contain line breaks (RFC 4180). Its row is complete when the quote closes. A
    quote that is open at the end of the file, or after `_LONGEST_ROW` characters, is taken for one
    that never closes: its line is left out, and each line after it is a row. The last row without a
    line end may be half-written, so it waits for `read_end`.

    Args:
        path: the file.
        keys: columns of the step and the time.
    """

    name = "csv"
    crash: None = None

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._decoder = path, RowDecoder(keys)
        self.config: Mapping[str, Any] = {}
        self._header: list[str] = []
        self._runs: list[RunOfTable] = []
        self._notes: list[str] = []
        self._delimiter = ","
        self._decimal_mark = ""
        """The mark in the first number that shows it; a comma before three digits does not."""
        self._open_row: list[str] = []
        """The lines of a row whose quoted cell is not closed yet."""
        self._open_length = 0
        self._is_one_line = False
        """Whether a quote did not close, so that each line is a row."""
        self._tail: Tail[list[LogRow]] = Tail(path, self._parse, each_line_is_a_row=True)
        self._tail.takes_unended = False

    def rewind(self) -> None:
        """Start over at the header."""
        self._header, self._decimal_mark = [], ""
        self._open_row, self._is_one_line = [], False
        self._tail.rewind()

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or truncated."""
        return self._tail.was_replaced()

    def read(self) -> Chunk[LogRow]:
        """Read the rows of the next block."""
        chunk = self._tail.read()
        rows = [row for rows in chunk.records for row in rows]
        return Chunk(rows, chunk.damage, chunk.size, chunk.more, self._notes)

    def read_end(self) -> Chunk[LogRow]:
        """Read the row without a line end, and what follows a quote that is still open."""
        self._tail.takes_unended = True
        chunk = self.read()
        self._tail.takes_unended = False
        if self._open_row and not chunk.more:
            chunk.records += self._give_up()
            chunk.notes = self._notes
        return chunk

    def _parse(self, line: bytes) -> list[LogRow]:
        text = line.decode("utf-8-sig", "replace")
        if self._open_row:
            self._open_row.append(text)
            if text.count('"') % 2 == 0:  # quotes within a cell are doubled
                self._open_length += len(text)
                return self._give_up() if self._open_length > _LONGEST_ROW else []
            text, self._open_row = "\n".join(self._open_row), []
        if not self._is_one_line and self._is_open(text):
            self._open_row, self._open_length = [text], len(text)
            return []
        return self._row(text)

    def _is_open(self, text: str) -> bool:
        """Whether a row ends within a quoted cell."""
        if '"' not in text:
            return False
        delimiter = self._delimiter if self._header else delimiter_of(text)
        try:
            next(csv.reader(io.StringIO(text), delimiter=delimiter, strict=True), [])
        except csv.Error as error:
            return "unexpected end of data" in str(error)
        return False

    def _give_up(self) -> list[LogRow]:
        """Take the lines after a quote that does not close for rows; a note names its line."""
        first, *others = self._open_row
        self._open_row, self._is_one_line = [], True
        rows: list[LogRow] = []
        left_out = 1
        for text in others:
            try:
                rows += self._row(text)
            except ValueError:
                left_out += 1
        self._notes = [
            *self._notes,
            f"a quoted cell does not close ({first:.40}); {count_of(left_out, 'line')} left out: "
            "correct the quotes of this row",
        ]
        return rows

    def _row(self, text: str) -> list[LogRow]:
        if not self._header:
            if text.startswith("#"):
                return []
            self._delimiter = delimiter_of(text)
            self._header = self._fields(text)
            runs = runs_of(self._header)
            self._runs = runs[:_MOST_RUNS]
            if len(runs) > _MOST_RUNS:
                self._notes = [
                    f"the table has {len(runs)} runs; the first {_MOST_RUNS} are read, so export "
                    "the others into separate tables"
                ]
            return []
        fields = self._with_decimal_points(self._fields(text))
        if fields == self._header:  # a resumed job repeats the header
            return []
        if len(fields) != len(self._header):
            raise ValueError(f"{len(fields)} fields, but the header has {len(self._header)}")
        rows = (self._row_of(run, fields) for run in self._runs)
        return [row for row in rows if row is not None]

    def _with_decimal_points(self, fields: list[str]) -> list[str]:
        """The cells of a row with decimal commas, as spreadsheets of many languages write numbers.

        A table with decimal points uses commas for something else, such as thousands.
        """
        if self._delimiter == "," or self._decimal_mark == ".":
            return fields
        if not self._decimal_mark:
            marks = map(_decimal_mark, fields)
            self._decimal_mark = next(filter(None, marks), "")
        if self._decimal_mark != ",":
            return fields
        return [
            field.replace(",", ".") if _DECIMAL_COMMA.fullmatch(field.strip()) else field
            for field in fields
        ]

    def _row_of(self, run: RunOfTable, fields: list[str]) -> LogRow | None:
        """The row of a run; None if its cells are empty."""
        pairs = zip(run.columns, fields, strict=True)
        cells = {key: cell for key, cell in pairs if key and cell.strip()}
        if not run.name:
            return self._decoder.row(cells)
        own = any(fields[place].strip() for place in run.own)
        return self._decoder.row({**cells, "run": run.name}) if own else None

    def _fields(self, text: str) -> list[str]:
        try:
            return next(csv.reader(io.StringIO(text), delimiter=self._delimiter, strict=True), [])
        except csv.Error as error:
            raise ValueError(f"not a table row: {error}") from None


class RunOfTable(NamedTuple):
    """The columns of one run in a table."""

    name: str
    """The run; empty if the table has one run only."""
    columns: list[str]
    """The key of each column; empty for columns that are not read."""
    own: list[int]
    """Places of the columns that only this run has."""


def runs_of(header: list[str]) -> list[RunOfTable]:
    """Return the runs of a table.

    W&B exports a chart as `RUN - key` together with its extremes, one such column for each run.
    Others write the run in front of the key or behind it.
    """
    names = [name.strip() for name in header]
    found = dict.fromkeys(run for name in names for run, dash, _ in [name.partition(" - ")] if dash)
    if not found:
        labelled = [
            RunOfTable(
                run, columns, [i for i, key in enumerate(columns) if key != names[i] and key]
            )
            for run, columns in labels_of_runs(names)
        ]
        return labelled or [RunOfTable("", names, [])]
    several = len(found) > 1
    return [_run_of_table(run, names, named=several) for run in found]


def _run_of_table(run: str, names: list[str], *, named: bool) -> RunOfTable:
    prefix = f"{run} - "
    bare = [name.removeprefix(prefix) for name in names]
    columns = ["" if name.endswith(_EXTREMES) or " - " in name else name for name in bare]
    own = [place for place, name in enumerate(names) if name.startswith(prefix) and columns[place]]
    return RunOfTable(run if named else "", columns, own)


def lists_runs(header: str) -> bool:
    """Whether a table has one row per run: the names, settings and last values that W&B lists."""
    names = [name.strip().strip('"') for name in header.split(delimiter_of(header))]
    return names[0] == "Name" and not any(_PROGRESS.fullmatch(name.lower()) for name in names)


def delimiter_of(header: str) -> str:
    """Return the character that separates the columns of a header."""
    return max(_DELIMITERS, key=header.count)


def _claims(path: Path, head: bytes) -> bool:
    if path.suffix.lower() not in (".csv", ".tsv") or b"\0" in head[:_LONGEST_HEADER]:
        return False
    header = head[:_LONGEST_HEADER].partition(b"\n")[0].decode("utf-8-sig", "replace")
    return 1 <= header.count(delimiter_of(header)) < MOST_KEYS and not lists_runs(header)


FORMAT = LogFormat("csv", 40, _claims, CommaSeparated)
