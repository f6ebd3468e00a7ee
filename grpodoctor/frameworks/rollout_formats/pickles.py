"""Loads pickles of `torch.save` without running their code, within a size limit."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from grpodoctor.errors import MissingExtraError, RunError
from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile

LARGEST = 256 * 1024 * 1024
"""Limit on the size of a pickle in bytes. A pickle is loaded as a whole, and Python's numbers take
four times as much space in memory as on disk."""

PICKLE = b"\x80"
ZIP = b"PK\x03\x04"


def load_from(source: DumpFile) -> Any:
    """The content of a local or remote file written by `torch.save`.

    Raises:
        RunError: if it is too large or holds more than data.
        MissingExtraError: if torch is not installed.
    """
    if source.size() > LARGEST:
        raise _too_large(source.path, source.size())
    with source.on_disk(LARGEST) as path:
        return load(path)


def load(path: Path) -> Any:
    """The content of a file written by `torch.save`; no code in it is run.

    Raises:
        RunError: if it is too large or holds more than data.
        MissingExtraError: if torch is not installed.
    """
    size = max(path.stat().st_size, _unpacked(path))
    if size > LARGEST:
        raise _too_large(path, size)
    try:
        import torch
    except ImportError:
        raise MissingExtraError("reading a dump of torch.save", "torch") from None
    import pickle
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols; errors are raised
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's message explains how to run the code
        what = "the pickle is damaged or holds more than data; no code in it was run"
        raise _refusal(path, what) from error
    except _DAMAGE as error:
        first = f"{type(error).__name__}: {error}".split("\n")[0]
        raise _refusal(path, f"the pickle is damaged: {first[:120]}") from error


_DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions of torch's unpickler for a damaged file. It is Python code that executes the file's
instructions on a stack without checking them, so wrong instructions fail in any of these ways."""


def _unpacked(path: Path) -> int:
    """Unpacked size in bytes that an archive states; 0 for other files.

    Raises:
        RunError: if the archive is damaged.
    """
    import zipfile

    if not zipfile.is_zipfile(path):
        return 0
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise _refusal(path, f"the archive is damaged: {error}") from error


def _too_large(path: Path, size: int) -> RunError:
    return _refusal(
        path, f"the pickle has {size >> 20} MiB; only pickles up to {LARGEST >> 20} MiB are loaded"
    )


def _refusal(path: Path, what: str) -> RunError:
    return RunError(what, where=str(path)[:200], remedy="dump JSON lines or Parquet instead")


def whole_file(path: Path | DumpFile, size: int) -> list[tuple[int, int]]:
    """The whole file as one part: a pickle cannot be split."""
    del size
    return [(0, DumpFile.of(path).size())]
