"""Comma-separated values with a header, such as a spreadsheet or a W&B export."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.json_rows import row_of
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.files.growing_files import Chunk, Tail

_DELIMITERS = (",", "\t", ";")
_LONGEST_HEADER = 1_000_000
_EXTREMES = ("__MIN", "__MAX")


class CommaSeparated:
    """Reads a growing table with one row per step.

    A field must not contain a line break; otherwise a half-written row could not be detected.

    Args:
        path: the file.
        keys: columns of the step and the time.
    """

    name = "csv"

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._keys = path, keys
        self.config: Mapping[str, Any] = {}
        self._header: list[str] = []
        self._columns: list[str] = []
        self._delimiter = ","
        self._tail: Tail[LogRow | None] = Tail(path, self._parse)

    def rewind(self) -> None:
        """Start over at the header."""
        self._header = []
        self._tail.rewind()

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or truncated."""
        return self._tail.was_replaced()

    def read(self) -> Chunk[LogRow]:
        """Read the rows of the next block."""
        chunk = self._tail.read()
        rows = [row for row in chunk.records if row is not None]
        return Chunk(rows, chunk.damage, chunk.size, chunk.more)

    def _parse(self, line: bytes) -> LogRow | None:
        text = line.decode("utf-8-sig", "replace")
        if not self._header:
            if text.startswith("#"):
                return None
            self._delimiter = delimiter_of(text)
            self._header = self._fields(text)
            self._columns = columns_of(self._header)
            return None
        fields = self._fields(text)
        if fields == self._header:  # a resumed job repeats the header
            return None
        if len(fields) != len(self._header):
            raise ValueError(f"{len(fields)} fields, but the header has {len(self._header)}")
        pairs = zip(self._columns, fields, strict=True)
        cells = {key: cell for key, cell in pairs if key and cell.strip()}
        return row_of(cells, self._keys)

    def _fields(self, text: str) -> list[str]:
        try:
            return next(csv.reader(io.StringIO(text), delimiter=self._delimiter, strict=True), [])
        except csv.Error as error:
            raise ValueError(f"not a table row: {error}") from None


def columns_of(header: list[str]) -> list[str]:
    """Return the keys of the columns; empty for columns that are not read.

    W&B exports a chart as `RUN - key` together with its extremes; of several runs the first is
    read.
    """
    names = [name.strip() for name in header]
    runs = [run for name in names for run, dash, _ in [name.partition(" - ")] if dash]
    if not runs:
        return names
    first = f"{runs[0]} - "
    bare = [name.removeprefix(first) for name in names]
    return ["" if name.endswith(_EXTREMES) or " - " in name else name for name in bare]


def delimiter_of(header: str) -> str:
    """Return the character that separates the columns of a header."""
    return max(_DELIMITERS, key=header.count)


def _claims(path: Path, head: bytes) -> bool:
    if path.suffix.lower() not in (".csv", ".tsv") or b"\0" in head[:_LONGEST_HEADER]:
        return False
    header = head[:_LONGEST_HEADER].partition(b"\n")[0].decode("utf-8-sig", "replace")
    return 1 <= header.count(delimiter_of(header)) < MOST_KEYS


FORMAT = LogFormat("csv", 40, _claims, CommaSeparated)
