"""Logs that arrive on a descriptor: standard input (`-`) and shell substitutions (`<(zcat log)`).

A log is read several times, so a stream is first copied to a temporary file of bounded size.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpodoctor.errors import RunError
from grpodoctor.support.progress import Progress

MAX_STREAM = 8 * 1024**3
"""Largest length in bytes of a stream; as large as an unpacked log may be."""

_BLOCK = 1024 * 1024
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})")
_PACKED = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}


def descriptor_of(path: str) -> int | None:
    """The open descriptor that a path stands for; None if it names a file."""
    if path in ("-", "/dev/stdin"):
        return 0
    match = _DESCRIPTOR.fullmatch(path)
    return int(match[1]) if match else None


@contextmanager
def copied_stream(path: str, descriptor: int, progress: Progress) -> Iterator[Path]:
    """Copy a stream to a temporary file for the duration of the block.

    Args:
        path: how the user named the stream.
        descriptor: where to read.
        progress: receives the bytes read so far.

    Raises:
        RunError: if the stream is a terminal, empty, too long, or cannot be read.
    """
    home = Path(tempfile.mkdtemp(prefix="grpodoctor-"))
    try:
        yield _copy(path, descriptor, home, progress)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _copy(path: str, descriptor: int, home: Path, progress: Progress) -> Path:
    if os.isatty(descriptor):
        raise RunError("a terminal, not a log", where=path, remedy="pipe a log into the command")
    total = 0
    try:
        first = os.read(descriptor, _BLOCK)
        suffix = next((name for magic, name in _PACKED.items() if first.startswith(magic)), "")
        target = home / f"stream{suffix}"
        with target.open("wb") as file:
            block = first
            while block and total <= MAX_STREAM:
                total += file.write(block)
                progress.update(total)
                block = os.read(descriptor, _BLOCK)
    except OSError as error:
        raise RunError(
            f"cannot copy the stream: {error.strerror}",
            where=path,
            remedy="save the log to a file and pass the file",
        ) from error
    if total > MAX_STREAM:
        raise RunError(
            f"the stream is longer than {MAX_STREAM >> 30} GiB",
            where=path,
            remedy="save the log to a file and pass the file",
        )
    if not total:
        raise RunError("the stream is empty", where=path, remedy="pipe a log into the command")
    return target
