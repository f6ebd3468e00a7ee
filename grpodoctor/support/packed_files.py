"""Packed logs and dumps: `.gz` and `.zst` around anything that is text.

They are unpacked as they are read, a few megabytes at a time. How much may come out is bounded by
how much goes in: text repeats itself, but not thousands of times.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from grpodoctor.errors import RunError
from grpodoctor.support.regular_files import open_regular

_KINDS = (".gz", ".zst")
MOST_TIMES = 200
"""Bytes that may come out of one: JSON of one text over and over comes to a hundred, a bomb to
a thousand and more."""
_FREE = 64 * 1024 * 1024
"""Bytes that may come out of any file."""
MOST_ASIDE = 8 * 1024**3
"""Bytes of a log that is unpacked to a disk."""
_BLOCK = 1024 * 1024
_LOOKED_AT = 64 * 1024


class Stream(Protocol):
    """What can be read from its beginning to its end."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; fewer than asked for, or none, only at the end."""

    def close(self) -> None:
        """Let it go."""


def is_packed(path: Path) -> bool:
    """Whether a file's name says that it is packed."""
    return path.suffix in _KINDS


def plain_name(path: Path) -> Path:
    """The path of what is packed in a file."""
    return path.with_suffix("") if is_packed(path) else path


class Unpacked:
    """What is packed in a file, read forwards; a step back is possible within what was read last.

    Where it breaks off or is damaged it ends, and `broken` says so.

    Args:
        packed: the file's bytes.
        path: the file, whose name says how it is packed.
        size: its length in bytes.
        most: bytes that may come out at most, however long it is.
    """

    def __init__(self, packed: Any, path: Path, size: int, most: int | None = None) -> None:
        self._packed, self._path = packed, path
        self._most = min(_FREE + MOST_TIMES * size, most or sys.maxsize)
        self._stream, self._errors = _stream_of(packed, path)
        self._window = b""
        self._start = self._at = 0
        self.broken = ""
        """Why it ended early; empty if it did not."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go."""
        try:
            self._stream.close()
        finally:
            self._packed.close()

    def seek(self, offset: int) -> None:
        """Go on reading at a place at or behind where the last reading began."""
        if offset < self._start:
            raise ValueError("what is packed is read forwards")
        self._at = offset

    def read(self, size: int) -> bytes:
        """The next bytes; fewer than asked for only at the end.

        Raises:
            RunError: if more has come out than a log can hold.
        """
        parts, end = [self._window], self._start + len(self._window)
        while end < self._at + size and (part := self._more(self._at + size - end)):
            parts.append(part)
            end += len(part)
        held = b"".join(parts)
        first = min(self._at - self._start, len(held))
        self._window = held[first:]
        self._start += first
        found = self._window[:size]
        self._at = self._start + len(found)
        return found

    def readinto(self, buffer: memoryview) -> int:
        """The next bytes into a buffer, as many as it holds; fewer only at the end."""
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def readline(self, size: int) -> bytes:
        """The next bytes up to a line's end."""
        found = self.read(size)
        end = found.find(b"\n") + 1
        if end:
            self._at = self._start + end
            return found[:end]
        return found

    def _more(self, size: int) -> bytes:
        if self.broken:
            return b""
        try:
            part = self._stream.read(min(size, _BLOCK))
        except self._errors as error:
            self.broken = f"damaged: {error}"[:120]
            return b""
        if self._start + len(self._window) + len(part) > self._most:
            raise RunError(
                f"more than {self._most} bytes come out of it",
                where=str(self._path)[:200],
                remedy="unpack it by hand if it is no bomb",
            )
        return part


def _stream_of(packed: Any, path: Path) -> tuple[Stream, tuple[type[Exception], ...]]:
    """What unpacks a file, and what that raises over a damaged one."""
    if path.suffix == ".gz":
        return gzip.GzipFile(fileobj=packed, mode="rb"), (EOFError, OSError, zlib.error)
    import pyarrow as pa

    source = pa.PythonFile(packed, mode="r")
    return pa.CompressedInputStream(source, "zstd"), (pa.ArrowException, OSError, ValueError)


def packed_head(path: Path) -> bytes:
    """How the contents of a packed file begin.

    Raises:
        OSError: if it cannot be read.
    """
    with Unpacked(open_regular(path), path, path.stat().st_size) as source:
        return source.read(_LOOKED_AT)


def unpack(path: Path, target: Path, told: Callable[[str], None]) -> None:
    """Unpack a file to another place.

    Args:
        path: the packed file.
        target: where it goes; its directory is made.
        told: is told if it breaks off.

    Raises:
        RunError: if far more comes out of it than goes in.
        OSError: if it cannot be read, or there is no room.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    size = path.stat().st_size
    with (
        Unpacked(open_regular(path), path, size, MOST_ASIDE) as source,
        target.open("wb") as copy,
    ):
        while block := source.read(_BLOCK):
            copy.write(block)
        if source.broken:
            told(f"{path.name} is {source.broken}; it was read up to there")
