"""Reading a file of binary records that another process may be writing, in bounded memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from grpodoctor.support.damage import Damage
from grpodoctor.support.growing_files import BLOCK, Chunk
from grpodoctor.support.regular_files import open_regular, unreadable

LONGEST_RECORD = 8 * 1024 * 1024
"""Longer records are skipped; the record of a step is a thousand times shorter."""

_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


@dataclass(slots=True)
class SplitBlock:
    """The complete records in a block of a file."""

    records: list[bytes] = field(default_factory=list)
    used: int = 0
    """Bytes that need not be read again; may exceed the block, but not the file."""
    errors: list[tuple[int, str]] = field(default_factory=list)
    """Positions of damage in the file, with the reason."""


BlockSplitter = Callable[[bytes, int, int], SplitBlock]
"""Takes a block, its position in the file, and the size of the file."""


class RecordTail:
    """Reads each record of a growing file once; a half-written last one is left for the next read.

    Args:
        path: the file, which may not exist yet.
        split: finds the records in a block.
    """

    def __init__(self, path: Path, split: BlockSplitter) -> None:
        self._path, self._split = path, split
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
            return error.errno in _MISSING
        return self._identity != (status.st_dev, status.st_ino) or status.st_size < self._offset

    def read(self) -> Chunk[bytes]:
        """Read the records of the next block.

        Raises:
            RunError: if the file exists but cannot be read.
        """
        try:
            with open_regular(self._path) as file:
                return self._read_block(file)
        except OSError as error:
            if error.errno in _MISSING:
                return Chunk()
            raise unreadable(self._path, error) from error

    def _read_block(self, file: BinaryIO) -> Chunk[bytes]:
        status = os.fstat(file.fileno())
        self._identity = (status.st_dev, status.st_ino)
        if status.st_size <= self._offset:
            return Chunk()
        file.seek(self._offset)
        block = file.read(BLOCK)
        split = self._split(block, self._offset, status.st_size)
        if not split.used and len(block) == BLOCK:
            block += file.read(LONGEST_RECORD + BLOCK)
            split = self._split(block, self._offset, status.st_size)
        self._offset += split.used
        damage = [Damage(self._path.name, 0, f"at byte {at}: {why}") for at, why in split.errors]
        more = split.used > 0 and self._offset < status.st_size
        return Chunk(split.records, damage, len(block), more)
