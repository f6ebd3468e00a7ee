"""Dumps of one JSON object a line, read by byte ranges in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast, overload

import numpy as np
import orjson

from grpodoctor.frameworks.rollout_formats.base import DumpFormat, Notes, Piece, Responses
from grpodoctor.frameworks.rollout_formats.source import ENDLESS, Source

BATCH_BYTES = 2 * 1024 * 1024
"""Text that is parsed before its rows are measured and forgotten."""
BLOCK_BYTES = 256 * 1024
"""Text that is parsed at once: it and its rows fit the processor's cache."""
LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of a line beyond which it is damage: a log's step with all its responses has less."""
_DEEPEST_LOOK = 64 * 1024
_BLANK_LOOK = 4096
_OPENED, _CLOSED, _FIRST, _LAST, _COMMA = b"{}[],"

Columns = Callable[[Sequence[dict[str, Any]], Sequence[str], Piece], Responses | None]
"""Rows, their ids and where they stand, to columns; None if there is no response in them."""


def json_format(
    name: str,
    framework: str,
    keys: tuple[str, ...],
    columns: Columns,
    step_of: Callable[[Path], int | None],
    *,
    rank: int = 50,
) -> DumpFormat:
    """A format of JSON lines.

    Args:
        name: of the format.
        framework: that writes it.
        keys: which every first line has.
        columns: what the rows mean.
        step_of: which step a file belongs to, by its name.
        rank: in which order formats are asked.
    """

    def claims(path: Path, head: bytes) -> bool:
        return path.suffix in (".jsonl", ".ndjson", ".json") and has_keys(head, keys)

    def read(piece: Piece, notes: Notes) -> Iterator[Responses]:
        for rows, names in batches(piece, notes):
            found = columns(rows, names, piece)
            if found is not None and len(found):
                yield found

    return DumpFormat(name, framework, rank, claims, step_of, cut_lines, read)


def has_keys(head: bytes, keys: tuple[str, ...]) -> bool:
    """Whether the first line is an object with these keys; a longer one is looked at as text."""
    line = head.lstrip()[:_DEEPEST_LOOK].split(b"\n", 1)[0]
    if not line.startswith(b"{"):
        return False
    row = parsed(line)
    if row is not None:
        return all(key in row for key in keys)
    cut_off = b"\n" not in head
    return cut_off and all(f'"{key}"'.encode() in line for key in keys[:2])


def cut_lines(path: Path | Source, size: int) -> list[tuple[int, int]]:
    """Byte ranges; a line belongs to the range in which it begins. What is packed is not cut."""
    source = Source.of(path)
    if source.is_packed:
        return [(0, ENDLESS)]
    total = source.size()
    count = max(1, -(-total // size))
    borders = [total * index // count for index in range(count + 1)]
    return list(pairwise(borders))


def batches(piece: Piece, notes: Notes) -> Iterator[tuple[list[dict[str, Any]], Names]]:
    """The objects of a piece, some at a time, and their ids: file and byte."""
    name = Path(piece.path).name
    rows: list[dict[str, Any]] = []
    places: list[int] = []
    held = 0
    with piece.source.open() as file:
        for block in _blocks(file, piece, notes):
            found, starts = _rows(block, piece, notes)
            rows += found
            places += [block.offset - 1 + start for start in starts]
            held += block.end
            if held >= BATCH_BYTES and rows:
                yield rows, Names(name, places)
                rows, places, held = [], [], 0
        if broken := getattr(file, "broken", ""):
            notes.damaged_at(name, 0, broken)
    if rows:
        yield rows, Names(name, places)


class Names(Sequence[str]):
    """Ids of rows, made when they are asked for: few are."""

    def __init__(self, file: str, places: Sequence[int]) -> None:
        self._file, self._places = file, places

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Names: ...
    def __getitem__(self, index: int | slice) -> str | Names:
        if isinstance(index, slice):
            return Names(self._file, self._places[index])
        return f"{self._file}@{self._places[index]}"

    def __len__(self) -> int:
        return len(self._places)


class _Block(NamedTuple):
    """Whole lines of a file; the next block overwrites them."""

    data: bytearray
    """One byte that is free, and then the lines."""
    end: int
    """Behind the last line."""
    offset: int
    """Where the first line stands in the file."""


def _blocks(file: BufferedReader, piece: Piece, notes: Notes) -> Iterator[_Block]:
    """The lines of a range, and those behind it that come with them."""
    offset = piece.start
    if offset > 0:
        file.seek(offset - 1)
        offset += _skip_line(file) - 1
    data = bytearray(BLOCK_BYTES + 2 if offset < piece.stop else 0)
    while offset < piece.stop:
        file.seek(offset)
        size = file.readinto(memoryview(data)[1:-1])
        # What is cut off is read again: that costs less than to put two parts together.
        end = size + 1 if size < len(data) - 2 else data.rfind(b"\n", 1, size + 1) + 1
        if end > 1:
            yield _Block(data, end, offset)
            offset += end - 1
            if len(data) > BATCH_BYTES:
                data = bytearray(BLOCK_BYTES + 2)
        elif not size:
            return
        elif size < LONGEST_LINE:
            data = bytearray(min(4 * size, LONGEST_LINE) + 2)
        else:
            what = f"a line of more than {LONGEST_LINE} bytes at byte {offset}"
            notes.damaged_at(Path(piece.path).name, 0, what)
            offset += size + _skip_line(file)


def _rows(block: _Block, piece: Piece, notes: Notes) -> tuple[list[dict[str, Any]], list[int]]:
    """The objects of a block that begin in a piece, and where."""
    starts = _starts(block, piece.stop - block.offset)
    rows = _at_once(block, starts)
    return (rows, starts[:-1]) if rows is not None else _one_by_one(block, starts, piece, notes)


def _starts(block: _Block, border: int) -> list[int]:
    """Where the lines before a border begin, and where one more would."""
    data, end, starts = block.data, block.end, [1]
    while starts[-1] < end and starts[-1] <= border:
        found = data.find(b"\n", starts[-1], end)
        starts.append(found + 1 if found >= 0 else end + 1)
    return starts


def _at_once(block: _Block, starts: Sequence[int]) -> list[dict[str, Any]] | None:
    """The objects of lines that are one object each, as almost all are; None if one is not.

    As one array they are parsed in half of the time. Lines that only make sense together, or that
    hold several objects, are told by their ends and their number, and are left as they were. A
    file made for it can have as many of the one as of the other: its author may say what he likes.
    """
    bytes_N = np.frombuffer(block.data, np.uint8)
    ends = np.array(starts[1:], np.int64) - 1
    opened, closed = bytes_N[np.array(starts[:-1], np.int64)], bytes_N[ends - 1]
    if not ((opened == _OPENED) & (closed == _CLOSED)).all():
        return None
    before, last = block.data[0], bytes_N[ends].copy()
    bytes_N[ends], block.data[0], block.data[starts[-1] - 1] = _COMMA, _FIRST, _LAST
    try:
        rows = orjson.loads(memoryview(block.data)[: starts[-1]])
    except ValueError:
        rows = []
    if len(rows) == ends.size and set(map(type, rows)) <= {dict}:
        return cast("list[dict[str, Any]]", rows)
    bytes_N[ends], block.data[0] = last, before
    return None


def _one_by_one(
    block: _Block, starts: Sequence[int], piece: Piece, notes: Notes
) -> tuple[list[dict[str, Any]], list[int]]:
    rows: list[dict[str, Any]] = []
    places: list[int] = []
    view = memoryview(block.data)
    for start, following in pairwise(starts):
        line = view[start : following - 1]
        if (row := parsed(line)) is not None:
            rows.append(row)
            places.append(start)
        elif bytes(line[:_BLANK_LOOK]).strip(b" \t\r\0"):
            what = f"no JSON object at byte {block.offset - 1 + start}"
            notes.damaged_at(Path(piece.path).name, 0, what)
    return rows, places


def parsed(line: bytes | memoryview) -> dict[str, Any] | None:
    """The object of a line; None if it is none. NaN, which Python writes, is taken."""
    try:
        found = orjson.loads(line)
    except ValueError:
        found = _leniently(bytes(line))
    return found if isinstance(found, dict) else None


def _leniently(line: bytes) -> object:
    if b"NaN" not in line and b"Infinity" not in line and b"\\u" not in line:
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _skip_line(file: BufferedReader) -> int:
    """Read to the end of the line; how many bytes that were."""
    skipped = 0
    while True:
        part = file.readline(1024 * 1024)
        skipped += len(part)
        if not part or part.endswith(b"\n"):
            return skipped
