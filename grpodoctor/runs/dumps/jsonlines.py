"""Dumps of one JSON object a line, read by byte ranges in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, overload

import orjson

from grpodoctor.runs.dumps.base import DumpFormat, Notes, Piece, Responses
from grpodoctor.runs.tail import open_regular

BATCH_BYTES = 2 * 1024 * 1024
"""Text that is parsed before its rows are measured and forgotten."""
LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of a line beyond which it is damage: a log's step with all its responses has less."""
_DEEPEST_LOOK = 64 * 1024
_BLANK_LOOK = 4096

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


def cut_lines(path: Path, size: int) -> list[tuple[int, int]]:
    """Byte ranges; a line belongs to the range in which it begins."""
    total = path.stat().st_size
    count = max(1, -(-total // size))
    borders = [total * index // count for index in range(count + 1)]
    return list(pairwise(borders))


def batches(piece: Piece, notes: Notes) -> Iterator[tuple[list[dict[str, Any]], Names]]:
    """The objects of a piece, some at a time, and their ids: file and byte."""
    name = Path(piece.path).name
    with open_regular(Path(piece.path)) as file:
        for block, end, offset in _blocks(file, piece, notes):
            rows: list[dict[str, Any]] = []
            places: list[int] = []
            for start, line in _lines(block, min(end, piece.stop - offset)):
                if (row := parsed(line)) is not None:
                    rows.append(row)
                    places.append(offset + start)
                elif bytes(line[:_BLANK_LOOK]).strip(b" \t\r\0"):
                    notes.damaged_at(name, 0, f"no JSON object at byte {offset + start}")
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


def _lines(block: bytes, stop: int) -> Iterator[tuple[int, memoryview]]:
    """The lines of a block that begin before a border, and where; not copied."""
    view = memoryview(block)
    start = 0
    while start < stop:
        end = block.find(b"\n", start)
        end = len(block) if end < 0 else end
        if end > start:
            yield start, view[start:end]
        start = end + 1


def _blocks(file: BinaryIO, piece: Piece, notes: Notes) -> Iterator[tuple[bytes, int, int]]:
    """Lines of a range, a few megabytes at a time: how far they are whole, where they begin."""
    offset = piece.start
    if offset > 0:
        file.seek(offset - 1)
        offset += _skip_line(file) - 1
    while offset < piece.stop:
        file.seek(offset)
        block = file.read(BATCH_BYTES)
        if not block:
            return
        # What is cut off is read again: that copies less than to put two parts together.
        end = block.rfind(b"\n") + 1 if len(block) == BATCH_BYTES else len(block)
        if end:
            yield block, end, offset
            offset += end
            continue
        block += file.readline(LONGEST_LINE)
        if len(block) < LONGEST_LINE or block.endswith(b"\n"):
            yield block, len(block), offset
            offset += len(block)
            continue
        what = f"a line of more than {LONGEST_LINE} bytes at byte {offset}"
        notes.damaged_at(Path(piece.path).name, 0, what)
        offset += len(block) + _skip_line(file)


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


def _skip_line(file: BinaryIO) -> int:
    """Read to the end of the line; how many bytes that were."""
    skipped = 0
    while True:
        part = file.readline(1024 * 1024)
        skipped += len(part)
        if not part or part.endswith(b"\n"):
            return skipped
