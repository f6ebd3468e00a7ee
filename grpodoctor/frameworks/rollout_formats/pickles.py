"""What pickles need: a reader that runs no code, bounds, and words to refuse them with."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

from grpodoctor.errors import MissingExtraError, RunError
from grpodoctor.frameworks.rollout_formats.source import Source

LARGEST = 256 * 1024 * 1024
"""Bytes of a pickle that is loaded: it is loaded whole, and Python's numbers take four times as
much in memory as on disk."""

PICKLE = b"\x80"
ZIP = b"PK\x03\x04"


def load_from(source: Source) -> Any:
    """The contents of a file written by `torch.save`, wherever it lies.

    Raises:
        RunError: if it is too large, or holds more than data.
        MissingExtraError: if torch is not installed.
    """
    if source.size() > LARGEST:
        raise _too_large(source.path, source.size())
    with source.on_disk(LARGEST) as path:
        return load(path)


def load(path: Path) -> Any:
    """The contents of a file written by `torch.save`, without running code from it.

    Raises:
        RunError: if it is too large, or holds more than data.
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
            warnings.simplefilter("ignore")  # of other pickle protocols: it says what is an error
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's words for it say how code would be run
        what = "a pickle that is damaged, or holds more than data; no code is run from it"
        raise _refusal(path, what) from error
    except _DAMAGE as error:
        first = f"{type(error).__name__}: {error}".split("\n")[0]
        raise _refusal(path, f"a damaged pickle: {first[:120]}") from error


_DAMAGE = (
    *(RuntimeError, ValueError, EOFError, KeyError, TypeError, AttributeError, IndexError),
    *(AssertionError, MemoryError, OverflowError, OSError),
)
"""What torch's reader of pickles raises over a file that is damaged, or wants code to run."""


def _unpacked(path: Path) -> int:
    """Bytes that an archive says it unpacks to; 0 for other files.

    Raises:
        RunError: if it is a damaged archive.
    """
    if not zipfile.is_zipfile(path):
        return 0
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(each.file_size for each in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise _refusal(path, f"a damaged archive: {error}") from error


def _too_large(path: Path, size: int) -> RunError:
    return _refusal(path, f"a pickle of {size >> 20} MiB is not loaded, only of {LARGEST >> 20}")


def _refusal(path: Path, what: str) -> RunError:
    return RunError(what, where=str(path)[:200], remedy="dump JSON lines or Parquet instead")


def whole_file(path: Path | Source, size: int) -> list[tuple[int, int]]:
    """A pickle cannot be cut."""
    del size
    return [(0, Source.of(path).size())]
