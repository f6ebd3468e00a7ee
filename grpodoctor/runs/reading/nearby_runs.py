"""Runs below a folder, for a command that was given none: found quickly, not completely."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grpodoctor.errors import GrpodoctorError
from grpodoctor.frameworks.run_config import is_checkpoint
from grpodoctor.runs.reading.opening import is_console_of_run, is_native, open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.reading.run_discovery import is_one_run
from grpodoctor.runs.records import EVENTS, MANIFEST, STEPS

SEARCH_SECONDS = 3.0
"""How long a search may take: a person waits for it."""

_DEEPEST = 4
_MOST_FILES = 20_000
_SKIPPED = {"node_modules", "site-packages", "__pycache__", "rollouts", "mailbox", "checkpoints"}
_LOG_SUFFIXES = {".json", ".jsonl", ".csv", ".log", ".out", ".err", ".txt", ".wandb", ".db", ".gz"}
_TENSORBOARD = "events.out.tfevents"


@dataclass(frozen=True, slots=True)
class NearbyRun:
    """A run on this machine."""

    path: Path
    written_at: float
    """Unix time of its latest write."""


def nearby_runs(folder: Path, seconds: float = SEARCH_SECONDS) -> list[NearbyRun]:
    """The runs in a folder and its sub-folders, the one that was written last first.

    Args:
        folder: where to search.
        seconds: time after which no further log is opened.
    """
    deadline = time.monotonic() + seconds
    files = sorted(_files(folder), key=lambda file: -file[1])
    found: dict[Path, NearbyRun] = {}
    for path, written_at in files:
        if path.name in {STEPS, MANIFEST, EVENTS}:
            if is_native(path.parent):
                found.setdefault(path.parent, NearbyRun(path.parent, written_at))
        elif time.monotonic() < deadline and path.parents[0] not in found and has_steps(path):
            run = _run_of(path, folder)
            if run != path and run not in found and not is_one_run(run, ReadOptions()):
                run = path  # the directory contains the logs of several runs
            found.setdefault(run, NearbyRun(run, written_at))
    return sorted(found.values(), key=lambda run: -run.written_at)


def has_steps(path: Path) -> bool:
    """Whether a file is a log with at least one step."""
    if path.suffix not in _LOG_SUFFIXES and not path.name.startswith(_TENSORBOARD):
        return False
    if is_console_of_run(path):
        return False
    try:
        return next(iter(open_run(path).steps), None) is not None
    except (GrpodoctorError, OSError):
        return False


def _run_of(log: Path, folder: Path) -> Path:
    """The directory of a log, with its config and its dumps; the log itself in `folder`."""
    directory = log.parent
    if is_checkpoint(directory) and directory != folder:
        directory = directory.parent
    return log if directory == folder else directory


def _files(folder: Path) -> Iterator[tuple[Path, float]]:
    """Non-empty files with the time of their latest write."""
    visited = 0
    for name, folders, names in os.walk(folder):
        here = Path(name)
        is_deepest = len(here.relative_to(folder).parts) >= _DEEPEST
        folders[:] = [] if is_deepest else [each for each in folders if not _is_skipped(each)]
        for each in names:
            visited += 1
            if visited > _MOST_FILES:
                return
            path = here / each
            try:
                status = path.stat()
            except OSError:
                continue
            if status.st_size:
                yield path, status.st_mtime


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED
