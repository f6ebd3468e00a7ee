"""MLflow's file store: a folder `metrics` with one text file per key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from grpodoctor.errors import RunError
from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.files.growing_files import Chunk, Tail
from grpodoctor.support.files.regular_files import files_below, open_regular
from grpodoctor.support.json_text import loads

_METRICS, _PARAMETERS, _META = "metrics", "params", "meta.yaml"
_LINE = re.compile(rb"(\d{10,16}) (\S{1,40})(?: (-?\d{1,15}))?(?: \S.*)?\s*")
"""Milliseconds, value and step; early versions had no step, later ones name a data set."""

_MAX_PARAMETER = 8 * 1024
_MAX_PARAMETERS = 4096
_CONSTANTS = {"True": True, "False": False, "None": None}

_Point = tuple[int, float, float]
"""Step, value and Unix time."""


class MlflowMetrics:
    """Reads the metrics of a run, whose files may still grow.

    Args:
        path: any file in the run's folder `metrics`.
    """

    name = "mlflow"
    crash: None = None

    def __init__(self, path: Path, keys: RowKeys) -> None:  # noqa: ARG002 - lines have a step
        self.path = path
        self._root = _metrics_folder(path)
        self.rewind()

    def rewind(self) -> None:
        """Start over at the first lines."""
        self._tails: dict[str, Tail[_Point]] = {}
        self._reached: dict[str, int] = {}
        """The latest step of each file that has more."""
        self._rows: dict[int, tuple[dict[str, float], float]] = {}

    def was_replaced(self) -> bool:
        """Whether a file was removed, replaced or truncated."""
        return any(tail.was_replaced() for tail in self._tails.values())

    def read(self) -> Chunk[LogRow]:
        """Read a block of each file; a step is returned when all files have passed it."""
        self._find_files()
        chunk = Chunk[LogRow]()
        for key, tail in self._tails.items():
            part = tail.read()
            chunk.damage += part.damage
            chunk.size += part.size
            for step, value, time in part.records:
                values, latest = self._rows.get(step, ({}, 0.0))
                values[key] = value
                self._rows[step] = (values, max(latest, time))
            self._reached.pop(key, None)
            if part.more:
                chunk.more = True
                self._reached[key] = part.records[-1][0] if part.records else -1
        border = min(self._reached.values(), default=None)
        complete = sorted(step for step in self._rows if border is None or step < border)
        for step in complete:
            values, time = self._rows.pop(step)
            chunk.records.append(LogRow(step, values, time))
        return chunk

    def _find_files(self) -> None:
        root = self._root or self.path.parent
        for path in files_below(root) if self._root else [self.path]:
            key = path.relative_to(root).as_posix()
            if key not in self._tails and len(self._tails) < MOST_KEYS:
                self._tails[key] = Tail(path, _point)

    @property
    def config(self) -> Mapping[str, Any]:
        """The parameters of the run."""
        if self._root is None:
            return {}
        folder = self._root.parent / _PARAMETERS
        try:
            return _parameters(folder, folder.stat().st_mtime_ns)
        except OSError:
            return {}


def _point(line: bytes) -> _Point:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError("not a line of a metric")
    return max(0, int(match[3] or 0)), float(match[2]), int(match[1]) / 1000


@lru_cache(maxsize=4)
def _parameters(folder: Path, _changed: int) -> Mapping[str, object]:
    values: dict[str, object] = {}
    for path in files_below(folder, max_entries=_MAX_PARAMETERS):
        try:
            with open_regular(path) as file:
                text = file.read(_MAX_PARAMETER).decode("utf-8", "replace")
        except (OSError, RunError):
            continue
        values[path.relative_to(folder).as_posix()] = _parameter(text.strip())
    return values


def _parameter(text: str) -> object:
    """A parameter, which MLflow stores as Python prints it."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    try:
        return loads(text.encode())
    except ValueError:
        return text


def _metrics_folder(path: Path) -> Path | None:
    """The folder `metrics` of a run that contains a file; None if there is none."""
    return next(
        (
            folder
            for folder in path.parents
            if folder.name == _METRICS and (folder.parent / _META).is_file()
        ),
        None,
    )


def _claims(path: Path, head: bytes) -> bool:
    """Whether this is the first file of a run's metrics; its reader reads the others too."""
    if _LINE.fullmatch(head.partition(b"\n")[0]) is None:
        return False
    folder = _metrics_folder(path)
    return folder is not None and next(files_below(folder), None) == path


FORMAT = LogFormat("mlflow", 20, _claims, MlflowMetrics)
