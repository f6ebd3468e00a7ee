"""Finds the runs in a directory: the directory itself, or what it contains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from grpodoctor.errors import RunError
from grpodoctor.runs.reading.opening import is_native, open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.records import MANIFEST, STEPS
from grpodoctor.support.progress import NoProgress

MOST_RUNS = 1000
"""Runs that one report lists."""

_DEEPEST = 6
_MOST_ENTRIES = 10_000


def runs_in(folder: Path, options: ReadOptions) -> list[Path]:
    """The runs in a directory, in the order of their names.

    A directory is one run if its logs belong together: the log, the dumps and the config of one
    run. Of a directory with the logs of several runs, each entry is searched.

    Args:
        folder: the directory.
        options: how to read logs.
    """
    quiet = replace(options, progress=NoProgress())
    return list(islice(_runs_below(folder, quiet, _DEEPEST), MOST_RUNS))


def _runs_below(folder: Path, options: ReadOptions, depth: int) -> Iterator[Path]:
    if is_native(folder) or (not has_native_run(folder, depth) and is_one_run(folder, options)):
        yield folder
        return
    for entry in sorted(folder.iterdir())[:_MOST_ENTRIES]:
        if entry.is_symlink():
            continue
        if entry.is_dir() and depth:
            yield from _runs_below(entry, options, depth - 1)
        elif entry.is_file() and _can_be_read(entry, options):
            yield entry


def has_native_run(folder: Path, depth: int = _DEEPEST) -> bool:
    """Whether a folder below this one is a run of the own recorder."""
    for entry in sorted(folder.iterdir())[:_MOST_ENTRIES]:
        if entry.is_dir() and not entry.is_symlink():
            if (entry / STEPS).exists() or (entry / MANIFEST).exists():
                return is_native(entry)
            if depth and has_native_run(entry, depth - 1):
                return True
    return False


def is_one_run(folder: Path, options: ReadOptions) -> bool:
    """Whether the logs of a folder belong together; False if there are none."""
    try:
        next(iter(open_run(folder, options).steps), None)
    except RunError:
        return False
    return True


def _can_be_read(file: Path, options: ReadOptions) -> bool:
    try:
        return next(iter(open_run(file, options).steps), None) is not None
    except RunError:
        return False
