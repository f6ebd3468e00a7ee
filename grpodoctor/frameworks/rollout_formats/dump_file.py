"""A file of a dump: local, compressed, or in a remote store that is read by ranges."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpodoctor.support.files.packed_files import Unpacked, is_packed, plain_name
from grpodoctor.support.files.regular_files import open_regular
from grpodoctor.support.files.remote_stores import is_remote, open_remote

ENDLESS = 1 << 62
"""The end of a file of unknown length."""
HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file of a dump."""

    path: Path
    """Its name, which gives its format and step."""
    origin: str = ""
    """Its actual location if it is compressed or remote: a path or an address."""
    length: int = -1
    """Its size in bytes, if a remote store has reported it."""

    @classmethod
    def of(cls, given: Path | DumpFile) -> DumpFile:
        """The dump file at a local path, compressed or not."""
        if isinstance(given, DumpFile):
            return given
        return cls(plain_name(given), str(given)) if is_packed(given) else cls(given)

    @property
    def is_packed(self) -> bool:
        """Whether it is compressed and must be read from the beginning."""
        return bool(self.origin) and is_packed(_path_in(self.origin))

    @property
    def is_remote(self) -> bool:
        """Whether it is in a remote store."""
        return is_remote(self.origin)

    @property
    def place(self) -> Path:
        """Its local path."""
        return Path(self.origin) if self.origin else self.path

    def size(self) -> int:
        """Its size in bytes, compressed.

        Raises:
            OSError: if it does not exist.
        """
        return self.length if self.length >= 0 else self.place.stat().st_size

    def open(self) -> Any:
        """Open its decompressed content for reading.

        Raises:
            RunError: if a remote store refuses access, or if it is not a regular file.
            OSError: if it cannot be read.
        """
        file = open_remote(self.origin) if self.is_remote else open_regular(self.place)
        if not self.is_packed:
            return file
        return Unpacked(file, _path_in(self.origin), self.size())

    def head(self) -> bytes:
        """Its first bytes."""
        with self.open() as file:
            start: bytes = file.read(HEAD_BYTES)
        return start

    @contextmanager
    def on_disk(self, most: int) -> Iterator[Path]:
        """A local path to the file's first `most` bytes, valid within the `with` block."""
        if not self.origin:
            yield self.path
            return
        with tempfile.NamedTemporaryFile(prefix="grpodoctor-") as copy:
            with self.open() as file:
                room = most
                while room > 0 and (block := file.read(min(room, HEAD_BYTES * 16))):
                    copy.write(block)
                    room -= len(block)
            copy.flush()
            yield Path(copy.name)


def _path_in(origin: str) -> Path:
    return Path(origin.partition("?")[0])
