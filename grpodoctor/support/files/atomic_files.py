"""Atomic writes: a reader, or a crash, sees the old file or the new one, never a part of it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"
"""Suffix of a file that is still being written; its name also starts with a dot."""


@contextmanager
def atomic_path(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the same folder; rename it to `path` when the block ends.

    The temporary file is removed if the block raises.

    Args:
        path: the file to write or to replace.
        sync: have file and folder on disk when the block ends, so that they survive a power
            failure.

    Raises:
        OSError: if the file cannot be renamed or flushed.
    """
    writer = f"{os.getpid()}-{threading.get_ident()}"
    temporary = path.with_name(f".{path.name}.{writer}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        if sync:
            _sync(temporary)
        temporary.replace(path)
        if sync:
            sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write a file atomically.

    Raises:
        OSError: if it cannot be written.
    """
    with atomic_path(path, sync=sync) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Write a UTF-8 text file atomically.

    Raises:
        OSError: if it cannot be written.
    """
    write_bytes(path, text.encode(), sync=sync)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new, empty folder next to `path`; rename it to `path` when the block ends.

    The new folder is removed if the block raises. A folder that has the name already is replaced.
    The files are on disk before they get the name, and the name is on disk when the block ends.

    Raises:
        OSError: if the folder cannot be made or renamed.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.iterdir():
            _sync(file)
        sync_folder(temporary)
        with _without_name(path):
            temporary.rename(path)
        sync_folder(path.parent)
        sync_folder(path.parent.parent)  # the folder of the first one is new itself
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def remove_folder(path: Path) -> None:
    """Remove a folder if it exists: it loses its name first, so that no part of it keeps the name.

    What a crash leaves has a name that starts with a dot: see `remove_leftovers`.

    Raises:
        OSError: if it cannot be renamed.
    """
    with _without_name(path):
        pass


@contextmanager
def _without_name(path: Path) -> Iterator[None]:
    """Take the name from a folder, if it exists, and remove the folder when the block ends."""
    nameless = path.with_name(f".{path.name}.removed")
    shutil.rmtree(nameless, ignore_errors=True)
    if path.exists():
        path.rename(nameless)
    yield
    shutil.rmtree(nameless, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what a crash left of folders that were written or removed; no other writer may run."""
    for suffix in ("partial", "removed"):
        for leftover in folder.glob(f".*.{suffix}"):
            shutil.rmtree(leftover, ignore_errors=True)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on disk; file systems that cannot are left alone."""
    with suppress(OSError):
        _sync(path)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
