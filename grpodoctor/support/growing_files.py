"""Reading a file of JSON lines that somebody else may be writing, in bounded memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from grpodoctor.support.damage import Damage
from grpodoctor.support.regular_files import is_missing, open_regular, unreadable

BLOCK = 256 * 1024
"""Bytes read at a time."""

LONGEST_LINE = 8 * 1024 * 1024
"""Bytes of a line beyond which it is damage: a step of a thousand metrics has a hundredth of it."""

_BLANK = b" \t\r\0"
"""Around a line: a file system may fill with zeros what a crash left unwritten."""

T = TypeVar("T")


@dataclass(slots=True)
class Chunk(Generic[T]):
    """What one look at a file gave."""

    records: list[T] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    size: int = 0
    """Bytes read."""
    more: bool = False
    """Whether another look would give more at once."""
    notes: list[str] = field(default_factory=list)
    """What had to be decided about the file, a line each."""


class Tail(Generic[T]):
    """The records of a growing file, each once.

    A half-written last line is left for later, one that is whole but for its line end is taken.

    Args:
        path: the file, which may not exist yet.
        parse: makes a record of a line; raises ValueError if it is none.
        patient: take a line without an end only when a second look finds it as it was: for text of
            which any part is a line.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T], *, patient: bool = False) -> None:
        self._path, self._parse, self._patient = path, parse, patient
        self.rewind()

    def rewind(self) -> None:
        """Start over at the first line."""
        self._offset = self._line = 0
        self._skipping = False
        self._unended = b""
        self._identity: tuple[int, int] | None = None

    def was_replaced(self) -> bool:
        """Whether the file that was read so far is gone: removed, replaced or cut short."""
        if self._identity is None:
            return False
        try:
            found = self._path.stat()
        except OSError as error:
            return is_missing(error)
        return self._identity != (found.st_dev, found.st_ino) or found.st_size < self._offset

    def read(self) -> Chunk[T]:
        """The records of the next block.

        Raises:
            RunError: if the file is there but cannot be read.
        """
        try:
            with open_regular(self._path) as file:
                return self._read_block(file)
        except OSError as error:
            if is_missing(error) or error.errno == errno.ESTALE:
                return Chunk()
            raise unreadable(self._path, error) from error

    def _read_block(self, file: BinaryIO) -> Chunk[T]:
        status = os.fstat(file.fileno())
        self._identity = (status.st_dev, status.st_ino)
        file.seek(self._offset)
        block = file.read(BLOCK)
        if len(block) == BLOCK and b"\n" not in block and not self._skipping:
            block += file.read(LONGEST_LINE - BLOCK)
        chunk = Chunk[T](size=len(block), more=self._offset + len(block) < status.st_size)
        if self._skipping:
            block = self._skip(block)
        self._take_lines(block, chunk)
        return chunk

    def _skip(self, block: bytes) -> bytes:
        """Drop what belongs to a line that is too long; what follows it."""
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
        elif rest and not chunk.more:
            self._take_unended(rest, chunk)

    def _take(self, line: bytes, chunk: Chunk[T]) -> None:
        text = line.strip(_BLANK)
        if not text:
            return
        try:
            chunk.records.append(self._parse(text))
        except ValueError as error:
            chunk.damage.append(self._damage(str(error)))

    def _take_unended(self, rest: bytes, chunk: Chunk[T]) -> None:
        if self._patient and rest != self._unended:
            self._unended = rest
            return
        try:
            chunk.records.append(self._parse(rest.strip(_BLANK)))
        except ValueError:
            return  # half-written: the rest is still to come
        self._offset += len(rest)

    def _damage(self, why: str) -> Damage:
        return Damage(self._path.name, self._line + 1, " ".join(why.split())[:200])
