"""Reading a file that another process may be writing, in bounded memory."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from grpodoctor.support.files.regular_files import is_missing, open_regular, unreadable

BLOCK = 256 * 1024
"""Bytes per read."""

ROW_BLOCK = 64 * 1024
"""Bytes per read of a log in which each line is a row. Of a larger block, more rows live at once,
which costs a third of the time: they leave the processor's caches and reach the garbage collector's
oldest generation."""

LONGEST_LINE = 8 * 1024 * 1024
"""Longer lines are damage; the line of a step with a thousand metrics is a hundred times shorter.
"""

_BLANK = b" \t\r\0"
"""Stripped from lines; after a crash, a file system may fill the unwritten part with zeros."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Damage:
    """One line, or a whole file, that could not be used."""

    file: str
    line: int
    """Line number from 1; 0 for the whole file."""
    why: str


@dataclass(slots=True)
class Chunk(Generic[T]):
    """The result of one read."""

    records: list[T] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    size: int = 0
    """Bytes read."""
    more: bool = False
    """Whether another read would return more without waiting."""
    notes: list[str] = field(default_factory=list)
    """Decisions made while reading, one line each."""


class GrowingFile(ABC, Generic[T]):
    """Reads each record of a growing file once.

    Args:
        path: the file, which may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rewind()

    def rewind(self) -> None:
        """Start over at the first record."""
        self._offset = 0
        self._identity: tuple[int, int] | None = None

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or truncated since the last read."""
        if self._identity is None:
            return False
        try:
            status = self._path.stat()
        except OSError as error:
            return is_missing(error)
        return self._identity != (status.st_dev, status.st_ino) or status.st_size < self._offset

    def read(self) -> Chunk[T]:
        """Read the records of the next block.

        Raises:
            RunError: if the file exists but cannot be read.
        """
        try:
            with open_regular(self._path) as file:
                status = os.fstat(file.fileno())
                self._identity = (status.st_dev, status.st_ino)
                file.seek(self._offset)
                return self._read_block(file, status.st_size)
        except OSError as error:
            if is_missing(error):
                return Chunk()
            raise unreadable(self._path, error) from error

    @abstractmethod
    def _read_block(self, file: BinaryIO, size: int) -> Chunk[T]:
        """Read the next block of a file of this size, and move `_offset` behind its records."""


class Tail(GrowingFile[T]):
    """Reads each line of a growing file once.

    A half-written last line is left for the next read. A complete last line without a line end is
    returned.

    Args:
        path: the file, which may not exist yet.
        parse: makes a record from a line; raises ValueError for any other line.
        confirm_last_line: return a last line without a line end only when a second read finds it
            unchanged. For text in which any part of a line looks like a line.
        each_line_is_a_row: read small blocks after the first one.
        keep_blank: return blank lines as well, so that the records count the lines.

    Attributes:
        takes_unended: whether a last line without a line end is read at all. Where any part of a
            record looks like a record, it can only be read when nothing is written any more.
    """

    def __init__(
        self,
        path: Path,
        parse: Callable[[bytes], T],
        *,
        confirm_last_line: bool = False,
        each_line_is_a_row: bool = False,
        keep_blank: bool = False,
    ) -> None:
        self._parse, self._confirm_last_line = parse, confirm_last_line
        self._each_line_is_a_row, self._keep_blank = each_line_is_a_row, keep_blank
        self.takes_unended = True
        super().__init__(path)

    def rewind(self) -> None:
        """Start over at the first line."""
        super().rewind()
        self._line = 0
        self._skipping = False
        self._unended = b""

    @property
    def lines_read(self) -> int:
        """The number of complete lines that were read."""
        return self._line

    def _read_block(self, file: BinaryIO, size: int) -> Chunk[T]:
        # The first read shows enough rows to detect the framework, whatever the lines are.
        limit = ROW_BLOCK if self._each_line_is_a_row and self._offset else BLOCK
        block = file.read(limit)
        if len(block) == limit and b"\n" not in block and not self._skipping:
            block += file.read(LONGEST_LINE - limit)
        chunk = Chunk[T](size=len(block), more=self._offset + len(block) < size)
        if self._skipping:
            block = self._skip_line(block)
        self._take_lines(block, chunk)
        return chunk

    def _skip_line(self, block: bytes) -> bytes:
        """Drop the rest of a line that is too long; return what follows it."""
        dropped, end, rest = block.partition(b"\n")
        self._offset += len(dropped) + len(end)
        if end:
            self._line += 1
            self._skipping = False
        return rest

    def _take_lines(self, block: bytes, chunk: Chunk[T]) -> None:
        *lines, rest = block.split(b"\n")
        for line in lines:
            self._take(line, chunk)
            self._line += 1
            self._offset += len(line) + 1
        if len(rest) >= LONGEST_LINE:
            chunk.damage.append(self._damage(f"a line of more than {LONGEST_LINE} bytes"))
            self._offset += len(rest)
            self._skipping = True
        elif rest and not chunk.more and self.takes_unended:
            self._take_unended(rest, chunk)

    def _take(self, line: bytes, chunk: Chunk[T]) -> None:
        text = line.strip(_BLANK)
        if not text and not self._keep_blank:
            return
        try:
            chunk.records.append(self._parse(text))
        except ValueError as error:
            chunk.damage.append(self._damage(str(error)))

    def _take_unended(self, rest: bytes, chunk: Chunk[T]) -> None:
        if self._confirm_last_line and rest != self._unended:
            self._unended = rest
            return
        try:
            chunk.records.append(self._parse(rest.strip(_BLANK)))
        except ValueError:
            return  # half-written
        self._offset += len(rest)

    def _damage(self, why: str) -> Damage:
        return Damage(self._path.name, self._line + 1, " ".join(why.split())[:200])
