"""The registry of log formats: detecting the format of a file and opening its reader."""

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
from grpodoctor.runs.log_formats.decoding.nameless_files import likely_names
from grpodoctor.support.files.regular_files import open_regular

_HEAD = 64 * 1024
"""Bytes of a file's beginning that identify its format."""


class LogFormat(NamedTuple):
    """A file format; each module of a format defines one as `FORMAT`."""

    name: str
    rank: int
    """Formats are tried in this order, the most specific first."""
    claims: Callable[[Path, bytes], bool]
    """Whether a file has this format, by its path and its first bytes."""
    open: Callable[[Path, RowKeys], LogReader]
    part_of: Callable[[Path], tuple[str, str]] = lambda path: (str(path), "")
    """The log that a file belongs to, and its position in the log: each launch of a job may write
    its own file, and the values of a later file count."""


@lru_cache(maxsize=1)
def all_log_formats() -> tuple[LogFormat, ...]:
    """Return all formats, the most specific first."""
    names = [module.name for module in pkgutil.iter_modules(folder.__path__)]
    modules = (importlib.import_module(f"{folder.__name__}.{name}") for name in names)
    formats: list[LogFormat] = [each.FORMAT for each in modules if hasattr(each, "FORMAT")]
    return tuple(sorted(formats, key=lambda each: (each.rank, each.name)))


def log_format_named(name: str) -> LogFormat | None:
    """Return the format with this name; None if there is none."""
    return next((each for each in all_log_formats() if each.name == name), None)


def log_format_of(path: Path) -> LogFormat | None:
    """Detect the format of a file; None if it is not a log.

    Raises:
        RunError: if it is a pipe or a device.
        OSError: if the file cannot be read.
    """
    with open_regular(path) as file:
        head = file.read(_HEAD)
    return _format_by(path, head)


def _format_by(path: Path, head: bytes) -> LogFormat | None:
    names = likely_names(path, head)
    for each in all_log_formats():
        if any(each.claims(name, head) for name in names):
            return each
    return None


def is_log(path: Path, head: bytes, name: str | None = None) -> bool:
    """Whether a file with these first bytes is a log, or its format was named."""
    return name is not None or _format_by(path, head) is not None


def open_log(path: Path, keys: RowKeys, name: str | None = None) -> LogReader | None:
    """Open the reader of a file, in the named or the detected format; None if it is not a log.

    Raises:
        ConfigError: if no format has this name.
        OSError: if the file cannot be read.
    """
    if name is None:
        detected = log_format_of(path)
        return None if detected is None else detected.open(path, keys)
    wanted = log_format_named(name)
    if wanted is None:
        known = ", ".join(each.name for each in all_log_formats())
        raise ConfigError(f"unknown file format {name[:40]!r}", remedy=f"use one of {known}")
    return wanted.open(path, keys)
