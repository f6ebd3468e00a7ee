"""Dumps with one JSON object per line, read by byte ranges with bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast, overload

import orjson

from grpodoctor.frameworks.rollout_formats.base import DamageLog, DumpFormat, FilePart, Responses
from grpodoctor.frameworks.rollout_formats.dump_file import ENDLESS, HEAD_BYTES, DumpFile
from grpodoctor.support.arrays import np
from grpodoctor.support.json_text import loads

BATCH_BYTES = 2 * 1024 * 1024
"""Bytes to parse before their rows are yielded as a batch."""
BLOCK_BYTES = 256 * 1024
"""Bytes to parse at once: they and their rows fit into the processor's cache."""
LONGEST_LINE = 64 * 1024 * 1024
"""Longer lines count as damage. A log line with all responses of a step is shorter."""
_FIRST_ROWS = 64
_BLANK_LINE_BYTES = 4096
_OPENED, _CLOSED, _FIRST, _LAST, _COMMA = b"{}[],"

Columns = Callable[[Sequence[dict[str, Any]], Sequence[str], FilePart], Responses | None]
"""Turns rows, their ids and their file part into columns; None if they hold no response."""


def json_format(
    name: str,
    framework: str,
    keys: tuple[str, ...],
    columns: Columns,
    step_of: Callable[[Path], int | None],
    *,
    rank: int = 50,
) -> DumpFormat:
    """Define a format of JSON lines.

    Args:
        name: name of the format.
        framework: name of the framework that writes it.
        keys: keys that the first line of every file has.
        columns: turns rows into columns.
        step_of: gives the step of a file from its name.
        rank: position in the order in which formats claim files.
    """

    def claims(path: Path, head: bytes) -> bool:
        return path.suffix in (".jsonl", ".ndjson", ".json") and has_keys(head, keys)

    def read(part: FilePart, damage_log: DamageLog) -> Iterator[Responses]:
        for rows, names in batches(part, damage_log):
            responses = columns(rows, names, part)
            if responses is not None and len(responses):
                yield responses

    return DumpFormat(name, framework, rank, claims, step_of, cut_lines, read)


def has_keys(head: bytes, keys: tuple[str, ...]) -> bool:
    """Whether the first line is an object with these keys; a cut-off line is searched as text."""
    line = head.lstrip()[:HEAD_BYTES].split(b"\n", 1)[0]
    if not line.startswith(b"{"):
        return False
    row = parsed(line)
    if row is not None:
        return all(key in row for key in keys)
    cut_off = b"\n" not in head
    return cut_off and all(f'"{key}"'.encode() in line for key in keys[:2])


def first_rows(head: bytes) -> list[dict[str, Any]]:
    """The objects of the first lines, at most 64; empty if a complete line is not an object.

    The last line may be cut, by the end of the head or because it is being written.
    """
    *lines, last = head.split(b"\n")
    rows = [parsed(line) for line in lines[:_FIRST_ROWS] if line.strip()]
    if len(lines) < _FIRST_ROWS and (row := parsed(last)) is not None:
        rows.append(row)
    known = [row for row in rows if row is not None]
    return known if len(known) == len(rows) else []


def cut_lines(path: Path | DumpFile, size: int) -> list[tuple[int, int]]:
    """Byte ranges of a file. A line belongs to the range in which it begins.

    A compressed file is one range.
    """
    source = DumpFile.of(path)
    if source.is_packed:
        return [(0, ENDLESS)]
    total = source.size()
    count = max(1, -(-total // size))
    bounds = [total * index // count for index in range(count + 1)]
    return list(pairwise(bounds))


def batches(part: FilePart, damage_log: DamageLog) -> Iterator[tuple[list[dict[str, Any]], RowIds]]:
    """Yield the objects of a part in batches, with ids made of file name and byte."""
    name = Path(part.path).name
    rows: list[dict[str, Any]] = []
    positions: list[int] = []
    pending_bytes = 0
    with part.source.open() as file:
        for block in _blocks(file, part, damage_log):
            block_rows, starts = _rows(block, part, damage_log)
            rows += block_rows
            positions += [block.offset - 1 + start for start in starts]
            pending_bytes += block.end
            if pending_bytes >= BATCH_BYTES and rows:
                yield rows, RowIds(name, positions)
                rows, positions, pending_bytes = [], [], 0
        if broken := getattr(file, "broken", ""):
            damage_log.damaged_at(name, 0, broken)
    if rows:
        yield rows, RowIds(name, positions)


class RowIds(Sequence[str]):
    """Ids of rows, built on access, since most are never used."""

    def __init__(self, file: str, positions: Sequence[int]) -> None:
        self._file, self._positions = file, positions

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> RowIds: ...
    def __getitem__(self, index: int | slice) -> str | RowIds:
        if isinstance(index, slice):
            return RowIds(self._file, self._positions[index])
        return f"{self._file}@{self._positions[index]}"

    def __len__(self) -> int:
        return len(self._positions)


class _Block(NamedTuple):
    """Complete lines of a file; the next block overwrites them."""

    data: bytearray
    """One free byte, then the lines."""
    end: int
    """Index after the last line."""
    offset: int
    """Position of the first line in the file."""


def _blocks(file: BufferedReader, part: FilePart, damage_log: DamageLog) -> Iterator[_Block]:
    """Yield the lines of a range; the last block may hold further ones."""
    offset = part.start
    if offset > 0:
        file.seek(offset - 1)
        offset += _skip_line(file) - 1
    data = bytearray(BLOCK_BYTES + 2 if offset < part.stop else 0)
    while offset < part.stop:
        file.seek(offset)
        size = file.readinto(memoryview(data)[1:-1])
        # Reading a cut-off line again costs less than joining two parts.
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
            damage_log.damaged_at(Path(part.path).name, 0, what)
            offset += size + _skip_line(file)


def _rows(
    block: _Block, part: FilePart, damage_log: DamageLog
) -> tuple[list[dict[str, Any]], list[int]]:
    """The objects of a block that begin in a part, and their positions."""
    starts = _starts(block, part.stop - block.offset)
    rows = _at_once(block, starts)
    return (rows, starts[:-1]) if rows is not None else _one_by_one(block, starts, part, damage_log)


def _starts(block: _Block, border: int) -> list[int]:
    """Positions of the lines that begin before a border, and the position after the last one."""
    data, end, starts = block.data, block.end, [1]
    while starts[-1] < end and starts[-1] <= border:
        line_end = data.find(b"\n", starts[-1], end)
        starts.append(line_end + 1 if line_end >= 0 else end + 1)
    return starts


def _at_once(block: _Block, starts: Sequence[int]) -> list[dict[str, Any]] | None:
    """The objects of a block in which every line is one object; None if a line is not.

    Parsing all lines as one array takes half the time. Lines that hold several objects or parts of
    one are detected by their first and last bytes and by the number of objects; the block is then
    restored. A crafted file can balance both kinds, which only affects its own rows.
    """
    bytes_N = np.frombuffer(block.data, np.uint8)
    ends = np.array(starts[1:], np.int64) - 1
    opened, closed = bytes_N[np.array(starts[:-1], np.int64)], bytes_N[ends - 1]
    if not ((opened == _OPENED) & (closed == _CLOSED)).all():
        return None
    first_byte, last_bytes = block.data[0], bytes_N[ends].copy()
    bytes_N[ends], block.data[0], block.data[starts[-1] - 1] = _COMMA, _FIRST, _LAST
    try:
        rows = orjson.loads(memoryview(block.data)[: starts[-1]])
    except ValueError:
        rows = []
    if len(rows) == ends.size and set(map(type, rows)) <= {dict}:
        return cast("list[dict[str, Any]]", rows)
    bytes_N[ends], block.data[0] = last_bytes, first_byte
    return None


def _one_by_one(
    block: _Block, starts: Sequence[int], part: FilePart, damage_log: DamageLog
) -> tuple[list[dict[str, Any]], list[int]]:
    rows: list[dict[str, Any]] = []
    positions: list[int] = []
    view = memoryview(block.data)
    for start, following in pairwise(starts):
        line = view[start : following - 1]
        if (row := parsed(line)) is not None:
            rows.append(row)
            positions.append(start)
        elif bytes(line[:_BLANK_LINE_BYTES]).strip(b" \t\r\0"):
            what = f"not a JSON object at byte {block.offset - 1 + start}"
            damage_log.damaged_at(Path(part.path).name, 0, what)
    return rows, positions


def parsed(line: bytes | memoryview) -> dict[str, Any] | None:
    """The object of a line; None if it is not one."""
    try:
        value = orjson.loads(line)  # a line of a dump is long, so it is not copied
    except ValueError:
        try:
            value = loads(bytes(line))
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def _skip_line(file: BufferedReader) -> int:
    """Read to the end of the line and return the number of bytes read."""
    skipped = 0
    while True:
        part = file.readline(1024 * 1024)
        skipped += len(part)
        if not part or part.endswith(b"\n"):
            return skipped
