"""Where a file of a dump lies: here, packed, or in a store that is asked for ranges of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpodoctor.support.packed_files import Unpacked, is_packed, plain_name
from grpodoctor.support.regular_files import open_regular
from grpodoctor.support.remote_stores import is_remote, open_remote

ENDLESS = 1 << 62
"""Where a file ends of which nobody knows how long it is."""
_LOOKED_AT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """A file of a dump."""

    path: Path
    """As it is named: what it is and which step it belongs to are read off it."""
    origin: str = ""
    """Where it really lies, if not there: a packed file, or an address."""
    length: int = -1
    """Bytes there, where a store has said so."""

    @classmethod
    def of(cls, given: Path | Source) -> Source:
        """A file of this machine, packed or not; or the source itself."""
        if isinstance(given, Source):
            return given
        return cls(plain_name(given), str(given)) if is_packed(given) else cls(given)

    @property
    def is_packed(self) -> bool:
        """Whether it has to be unpacked, and so be read from its beginning."""
        return bool(self.origin) and is_packed(_path_in(self.origin))

    @property
    def is_remote(self) -> bool:
        """Whether it lies elsewhere."""
        return is_remote(self.origin)

    @property
    def place(self) -> Path:
        """Where it lies on this machine."""
        return Path(self.origin) if self.origin else self.path

    def size(self) -> int:
        """Bytes where it lies.

        Raises:
            OSError: if it is gone.
        """
        return self.length if self.length >= 0 else self.place.stat().st_size

    def open(self) -> Any:
        """A binary file to read: whole, or unpacked.

        Raises:
            RunError: if a store refuses, or it is no regular file.
            OSError: if it cannot be read.
        """
        file = open_remote(self.origin) if self.is_remote else open_regular(self.place)
        if not self.is_packed:
            return file
        return Unpacked(file, _path_in(self.origin), self.size())

    def head(self) -> bytes:
        """How it begins."""
        with self.open() as file:
            found: bytes = file.read(_LOOKED_AT)
        return found

    @contextmanager
    def on_disk(self, most: int) -> Iterator[Path]:
        """The file on this machine, for as long as the block lasts; the first bytes of it only."""
        if not self.origin:
            yield self.path
            return
        with tempfile.NamedTemporaryFile(prefix="grpodoctor-") as copy:
            with self.open() as file:
                room = most
                while room > 0 and (block := file.read(min(room, _LOOKED_AT * 16))):
                    copy.write(block)
                    room -= len(block)
            copy.flush()
            yield Path(copy.name)


def _path_in(origin: str) -> Path:
    return Path(origin.partition("?")[0])
