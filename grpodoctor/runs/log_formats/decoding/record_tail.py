"""Reading a file of binary records that another process may be writing, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from grpodoctor.support.files.growing_files import BLOCK, Chunk, Damage, GrowingFile

LONGEST_RECORD = 8 * 1024 * 1024
"""Longer records are skipped; the record of a step is a thousand times shorter."""


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


class RecordTail(GrowingFile[bytes]):
    """Reads each record of a growing file once; a half-written last one is left for the next read.

    Args:
        path: the file, which may not exist yet.
        split: finds the records in a block.
    """

    def __init__(self, path: Path, split: BlockSplitter) -> None:
        self._split = split
        super().__init__(path)

    def _read_block(self, file: BinaryIO, size: int) -> Chunk[bytes]:
        if size <= self._offset:
            return Chunk()
        block = file.read(BLOCK)
        split = self._split(block, self._offset, size)
        if not split.used and len(block) == BLOCK:
            block += file.read(LONGEST_RECORD + BLOCK)
            split = self._split(block, self._offset, size)
        self._offset += split.used
        damage = [Damage(self._path.name, 0, f"at byte {at}: {why}") for at, why in split.errors]
        more = split.used > 0 and self._offset < size
        return Chunk(split.records, damage, len(block), more)
