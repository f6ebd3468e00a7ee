"""Reading a file of binary records that somebody else may be writing, in bounded memory."""

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
"""Bytes of a record that is looked at: the numbers of a step have a thousandth of it."""

_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


@dataclass(slots=True)
class Cut:
    """What stands whole in a block of a file."""

    records: list[bytes] = field(default_factory=list)
    used: int = 0
    """Bytes that need not be looked at again; may reach past the block, but not past the file."""
    wrong: list[tuple[int, str]] = field(default_factory=list)
    """Where in the file something is damaged, and what."""


Cutter = Callable[[bytes, int, int], Cut]
"""Takes a block, where in the file it begins, and how long the file is."""


class RecordTail:
    """The records of a growing file, each once; a half-written last one is left for later.

    Args:
        path: the file, which may not exist yet.
        cut: finds the records in a block.
    """

    def __init__(self, path: Path, cut: Cutter) -> None:
        self._path, self._cut = path, cut
        self.rewind()

    def rewind(self) -> None:
        """Start over at the first record."""
        self._offset = 0
        self._identity: tuple[int, int] | None = None

    def was_replaced(self) -> bool:
        """Whether the file that was read so far is gone: removed, replaced or cut short."""
        if self._identity is None:
            return False
        try:
            found = self._path.stat()
        except OSError as error:
            return error.errno in _MISSING
        return self._identity != (found.st_dev, found.st_ino) or found.st_size < self._offset

    def read(self) -> Chunk[bytes]:
        """The records of the next block.

        Raises:
            RunError: if the file is there but cannot be read.
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
        cut = self._cut(block, self._offset, status.st_size)
        if not cut.used and len(block) == BLOCK:
            block += file.read(LONGEST_RECORD + BLOCK)
            cut = self._cut(block, self._offset, status.st_size)
        self._offset += cut.used
        damage = [Damage(self._path.name, 0, f"at byte {at}: {why}") for at, why in cut.wrong]
        more = cut.used > 0 and self._offset < status.st_size
        return Chunk(cut.records, damage, len(block), more)
