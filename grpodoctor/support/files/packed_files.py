"""Compressed logs and dumps: text in `.gz` and `.zst` files.

They are unpacked while they are read, a few megabytes at a time. The unpacked size is limited
relative to the packed size: text is repetitive, but not a thousandfold.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

from grpodoctor.errors import RunError
from grpodoctor.support.files.regular_files import open_regular

_SUFFIXES = (".gz", ".zst")
MAX_RATIO = 200
"""Largest ratio of unpacked to packed bytes. JSON that repeats one text reaches a hundred, a
decompression bomb a thousand and more."""
_ALWAYS_ALLOWED = 64 * 1024 * 1024
"""Unpacked bytes that any file may have."""
MAX_UNPACKED_LOG = 8 * 1024**3
"""Largest size in bytes of a log unpacked to disk."""
_BLOCK = 1024 * 1024
_HEAD = 64 * 1024
_PIECE = 64
"""Bytes of one read before damage. The libraries lose what a failed read has unpacked."""


class Stream(Protocol):
    """A sequential byte stream."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; fewer than `size` only at the end."""

    def close(self) -> None:
        """Close the stream."""


def is_packed(path: Path) -> bool:
    """Whether a file is compressed, by its suffix."""
    return path.suffix in _SUFFIXES


def plain_name(path: Path) -> Path:
    """The path without the suffix of the compression."""
    return path.with_suffix("") if is_packed(path) else path


class Unpacked:
    """The content of a compressed file, read forwards.

    Seeking back is possible within the latest read. At damage or at an unexpected end the content
    ends, and `broken` holds the reason.

    Args:
        packed: the open compressed file.
        path: its path; the suffix tells the compression.
        size: its size in bytes.
        most: largest unpacked size in bytes.
    """

    def __init__(self, packed: Any, path: Path, size: int, most: int | None = None) -> None:
        self._packed, self._path = packed, path
        self._most = min(_ALWAYS_ALLOWED + MAX_RATIO * size, most or sys.maxsize)
        self._stream, self._errors = _stream_of(packed, path)
        self._window = b""
        self._start = self._position = self._unpacked = 0
        self.broken = ""
        """Why the content ended early; empty if it did not."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        try:
            self._stream.close()
        finally:
            self._packed.close()

    def seek(self, offset: int) -> None:
        """Continue reading at an offset, not before the start of the latest read.

        Raises:
            ValueError: if the offset is further back.
        """
        if offset < self._start:
            raise ValueError("a compressed file can only be read forwards")
        self._position = offset

    def read(self, size: int) -> bytes:
        """Return the next bytes; fewer than `size` only at the end.

        Raises:
            RunError: if the unpacked size exceeds the limit.
        """
        parts, end = [self._window], self._start + len(self._window)
        while end < self._position + size and (part := self._unpack(self._position + size - end)):
            parts.append(part)
            end += len(part)
        content = b"".join(parts)
        first = min(self._position - self._start, len(content))
        self._window = content[first:]
        self._start += first
        block = self._window[:size]
        self._position = self._start + len(block)
        return block

    def readinto(self, buffer: memoryview) -> int:
        """Read the next bytes into a buffer; return how many."""
        block = self.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def readline(self, size: int) -> bytes:
        """Return the next bytes up to a line end, at most `size`."""
        block = self.read(size)
        end = block.find(b"\n") + 1
        if end:
            self._position = self._start + end
            return block[:end]
        return block

    def _unpack(self, size: int) -> bytes:
        if self.broken:
            return b""
        try:
            part = self._stream.read(min(size, _BLOCK))
        except self._errors as error:
            self.broken = f"damaged: {error}"[:120]
            part = self._before_damage()
        self._unpacked += len(part)
        if self._unpacked > self._most:
            raise RunError(
                f"unpacks to more than {self._most} bytes",
                where=str(self._path)[:200],
                remedy="if you trust the file, unpack it yourself",
            )
        return part

    def _before_damage(self) -> bytes:
        """What a failed read had unpacked: read again from the start, in small pieces."""
        self._packed.seek(0)
        stream, errors = _stream_of(self._packed, self._path)
        left, parts = self._unpacked, list[bytes]()
        try:
            while left and (skipped := stream.read(min(left, _BLOCK))):
                left -= len(skipped)
            while not left and (piece := stream.read(_PIECE)):
                parts.append(piece)
        except errors:
            pass
        return b"".join(parts)


def _stream_of(packed: Any, path: Path) -> tuple[Stream, tuple[type[Exception], ...]]:
    """The decompressing stream of a file, and the errors that it raises for damage."""
    if path.suffix == ".gz":
        return gzip.GzipFile(fileobj=packed, mode="rb"), (EOFError, OSError, zlib.error)
    import pyarrow as pa

    source = pa.PythonFile(packed, mode="r")
    return pa.CompressedInputStream(source, "zstd"), (pa.ArrowException, OSError, ValueError)


def packed_head(path: Path) -> bytes:
    """Return the beginning of a compressed file's content.

    Raises:
        OSError: if the file cannot be read.
    """
    with Unpacked(open_regular(path), path, path.stat().st_size) as source:
        return source.read(_HEAD)


def unpack(path: Path, target: Path, add_note: Callable[[str], None]) -> None:
    """Unpack a file to another path.

    Args:
        path: the compressed file.
        target: where the content goes; its folder is created.
        add_note: receives a note if the content ends early.

    Raises:
        RunError: if the unpacked size exceeds the limit.
        OSError: if the file cannot be read or the target cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    size = path.stat().st_size
    with (
        Unpacked(open_regular(path), path, size, MAX_UNPACKED_LOG) as source,
        target.open("wb") as copy,
    ):
        while block := source.read(_BLOCK):
            copy.write(block)
        if source.broken:
            add_note(f"{path.name} is {source.broken}; only the part before was read")
