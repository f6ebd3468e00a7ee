"""Which reader reads a file; each format's module says which files are its own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import grpodoctor.runs.log_formats as folder
from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogReader

_LOOKED_AT = 64 * 1024
"""Bytes of a file's beginning by which a format is known."""


class LogFormat(NamedTuple):
    """A file format: its module in this folder defines one under the name `FORMAT`."""

    name: str
    rank: int
    """Formats are asked in this order, the most particular first."""
    claims: Callable[[Path, bytes], bool]
    """Whether a file is of this format, by its path and its first bytes."""
    open: Callable[[Path, RowKeys], LogReader]
    part_of: Callable[[Path], tuple[str, str]] = lambda path: (str(path), "")
    """Which log a file is a part of, and its place in it: each launch of a job may write a file of
    its own, and what a later one says counts."""


@lru_cache(maxsize=1)
def all_log_formats() -> tuple[LogFormat, ...]:
    """Every format, the most particular first."""
    names = [module.name for module in pkgutil.iter_modules(folder.__path__)]
    modules = (importlib.import_module(f"{folder.__name__}.{name}") for name in names)
    found: list[LogFormat] = [each.FORMAT for each in modules if hasattr(each, "FORMAT")]
    return tuple(sorted(found, key=lambda each: (each.rank, each.name)))


def log_format_named(name: str) -> LogFormat | None:
    """The file format of that name; None if there is none."""
    return next((each for each in all_log_formats() if each.name == name), None)


def log_format_of(path: Path) -> LogFormat | None:
    """The format of a file by what it begins with; None if it is no log.

    Raises:
        OSError: if it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(_LOOKED_AT)
    return next((each for each in all_log_formats() if each.claims(path, head)), None)


def is_log(path: Path, head: bytes, name: str | None = None) -> bool:
    """Whether a file that begins so is a log, or is to be taken for one of the named format."""
    return name is not None or any(each.claims(path, head) for each in all_log_formats())


def open_log(path: Path, keys: RowKeys, name: str | None = None) -> LogReader | None:
    """The reader of a file, in the named format or the one that it is in.

    Raises:
        ConfigError: if no format has that name.
        OSError: if the file cannot be read.
    """
    if name is None:
        found = log_format_of(path)
        return None if found is None else found.open(path, keys)
    wanted = log_format_named(name)
    if wanted is None:
        known = ", ".join(each.name for each in all_log_formats())
        raise ConfigError(f"there is no file format {name[:40]!r}", remedy=f"use one of {known}")
    return wanted.open(path, keys)
