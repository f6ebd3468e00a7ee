"""Finds the runs in a directory: the directory itself, or what it contains."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Literal

from grpodoctor.errors import MixedRunsError, NoLogError, RunError
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogRow, chunks_of
from grpodoctor.runs.reading.log_files import LogFiles
from grpodoctor.runs.reading.opening import is_console_of_run, is_native, open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.reading.rows.run_columns import RunColumns, cell_of
from grpodoctor.support.files.regular_files import MOST_ENTRIES, files_below
from grpodoctor.support.progress import NoProgress, Progress

MOST_RUNS = 1000
"""Runs that one report lists."""

_DEEPEST = 6
_MOST_ENTRIES = 10_000

_MOST_VISITED = 20 * MOST_ENTRIES
"""Entries that are visited in the search for runs of the own recorder."""

_MOST_OPENED = 3 * MOST_ENTRIES
"""Files that are opened in the search for runs. A file counts again in each of its folders, because
the logs of each folder are compared."""

_MOST_SECONDS = 5.0
"""Processor time of a search that finds no further run: thousands of files. A folder with many runs
is searched to its end, because each run starts the time again."""


def runs_in(
    folder: Path,
    options: ReadOptions,
    progress: Progress | None = None,
    on_cut_off: Callable[[Sequence[Path]], None] = lambda _: None,
) -> list[Path]:
    """The runs in a directory, in the order of their names.

    A directory is one run if its logs belong together: the log, the dumps and the config of one
    run. Of a directory with the logs of several runs, each entry is searched.

    Args:
        folder: the directory.
        options: how to read logs.
        progress: receives the number of files that were opened.
        on_cut_off: called with the entries that were not searched, or not to their end, if there
            are too many files or runs.
    """
    search = _RunSearch(replace(options, progress=NoProgress()), progress or NoProgress())
    found = search.below(folder, _DEEPEST)
    runs = list(islice(found, MOST_RUNS))
    if search.is_cut_off or next(found, None) is not None:
        on_cut_off(search.left)
    return runs


class _RunSearch:
    """The search for the runs in a directory, which opens a limited number of files.

    Args:
        options: how to read logs.
        progress: receives the number of files that were opened.
    """

    def __init__(self, options: ReadOptions, progress: Progress) -> None:
        self._options, self._progress = options, progress
        self._opened = self._visited = 0
        self._last_run = time.thread_time()
        self.is_cut_off = False
        """Whether the search stopped because there are too many files."""
        self.left: Sequence[Path] = ()
        """The entries of the directory that are not searched to their end yet."""

    def below(self, folder: Path, depth: int) -> Iterator[Path]:
        """The runs in a folder, to so many levels of sub-folders."""
        content = self._content(folder, depth)
        if content == "one run":
            yield folder
            self._last_run = time.thread_time()
        if content != "parts":
            return
        entries = _entries(folder)[:_MOST_ENTRIES]
        for place, entry in enumerate(entries):
            if self.is_cut_off:
                return
            if depth == _DEEPEST:
                self.left = entries[place:]
            if entry.is_symlink() or is_console_of_run(entry):
                continue
            if entry.is_dir() and depth:
                yield from self.below(entry, depth - 1)
            elif entry.is_file() and self._may_open(entry) and _can_be_read(entry, self._options):
                yield entry
                self._last_run = time.thread_time()

    def _content(self, folder: Path, depth: int) -> Literal["one run", "parts", "nothing"]:
        """Whether a folder is one run, or its parts are to be searched."""
        if self.is_cut_off:
            return "nothing"
        if is_native(folder):
            return "one run"
        if self._has_native_run(folder, depth):
            return "parts"
        try:
            if self._may_open(folder):
                next(iter(open_run(folder, self._options).steps), None)
                return "one run"
        except NoLogError:
            pass
        except RunError:  # several runs, or one that cannot be read with the others
            return "parts"
        return "nothing"

    def _has_native_run(self, folder: Path, depth: int) -> bool:
        for is_run in islice(_native_runs_among(folder, depth), MOST_ENTRIES):
            self._visited += 1
            if is_run:
                return True
        self.is_cut_off |= self._visited > _MOST_VISITED
        return False

    def _may_open(self, path: Path) -> bool:
        """Count the files of a path that are about to be opened."""
        self._opened += sum(1 for _ in files_below(path)) if path.is_dir() else 1
        self.is_cut_off |= self._opened > _MOST_OPENED or self._takes_too_long()
        self._progress.update(self._opened, detail=path.name)
        return not self.is_cut_off

    def _takes_too_long(self) -> bool:
        """Whether no run was found for a while; the directory itself is always opened."""
        return bool(self.left) and time.thread_time() - self._last_run > _MOST_SECONDS


def has_native_run(folder: Path, depth: int = _DEEPEST) -> bool:
    """Whether a folder below this one is a run of the own recorder."""
    return any(islice(_native_runs_among(folder, depth), MOST_ENTRIES))


def _native_runs_among(folder: Path, depth: int) -> Iterator[bool]:
    """Whether each entry below a folder is a run of the own recorder, level by level."""
    level = [folder]
    for _ in range(depth + 1):
        below: list[Path] = []
        for current in level:
            for entry in _entries(current):
                try:
                    is_folder = entry.is_dir() and not entry.is_symlink()
                    yield is_folder and is_native(entry)
                except OSError:  # the folder may be listed, but not entered
                    continue
                if is_folder:
                    below.append(entry)
        level = below


def _entries(folder: Path) -> list[Path]:
    """The entries by name; none if the folder cannot be listed."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


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
    except MixedRunsError:  # its runs are read one by one
        return True
    except RunError:
        return False


def runs_in_log(log: Path, on_note: Callable[[str], None]) -> list[dict[str, str]]:
    """The runs in a log that has a column to distinguish them, as values of `ReadOptions.where`.

    Args:
        log: the log.
        on_note: receives a line for each damaged or ignored part of the log.

    Returns:
        At most `MOST_RUNS` runs, in the order of their first rows; none if it has only one.

    Raises:
        RunError: if the log cannot be read.
    """
    columns, names, found = RunColumns(), dict[str, dict[str, None]](), ""
    for row in _rows_of(log, on_note):
        for column in columns.names_in(row):
            names.setdefault(column, {})[cell_of(row, column) or ""] = None
        found = found or columns.add(row)
    return [{found: name} for name in names.get(found, ())][:MOST_RUNS]


def _rows_of(log: Path, on_note: Callable[[str], None]) -> Iterator[LogRow]:
    notes: set[str] = set()
    logs = LogFiles(log, None, RowKeys())
    logs.search()
    for file in logs.in_order():
        for chunk in chunks_of(file.reader):
            for note in set(chunk.notes) - notes:
                notes.add(note)
                on_note(note)
            yield from chunk.records
