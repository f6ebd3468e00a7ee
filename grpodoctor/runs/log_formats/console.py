"""Console output of a job, redirected to a file or written by `tee`."""

from __future__ import annotations

import re
from pathlib import Path

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import CONSOLE, LogReader
from grpodoctor.runs.log_formats.registry import LogFormat

_HOLE = re.compile(rb"\0+")
_MOST_HOLES = 4
"""Holes in the beginning of a log; binary files have hundreds of NUL bytes among others."""


def _claims(path: Path, head: bytes) -> bool:
    if path.suffix in (".py", ".md", ".yaml", ".yml", ".toml", ".html", ".json"):
        return False
    by_name = path.suffix in (".log", ".txt", ".out", ".err", "") and _is_text(head)
    return by_name or _has_rows(head)


def _is_text(head: bytes) -> bool:
    """Whether the only NUL bytes are holes of a file that was truncated while it was written."""
    return len(_HOLE.findall(head)) <= _MOST_HOLES


def _has_rows(head: bytes) -> bool:
    # Its hundred patterns take longer to compile than a short log of another format to read.
    from grpodoctor.runs.log_formats.decoding.console_reader import has_rows

    return has_rows(head)


def _open(path: Path, keys: RowKeys) -> LogReader:
    from grpodoctor.runs.log_formats.decoding.console_reader import Console

    return Console(path, keys)


FORMAT = LogFormat(CONSOLE, 90, _claims, _open)
