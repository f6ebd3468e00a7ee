"""The log files of a run: finding them as they appear, opening and ordering them."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grpodoctor.errors import RunError
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.frameworks.run_config import is_checkpoint
from grpodoctor.runs.log_formats.base import CONSOLE, LogReader
from grpodoctor.runs.log_formats.notebook import NOTEBOOK
from grpodoctor.runs.log_formats.registry import is_log, log_format_named, open_log
from grpodoctor.runs.log_formats.trainer_state import TRAINER_STATE, TRAINER_STATE_FILE, progress_of
from grpodoctor.runs.rollout_dumps.dump_follower import DumpFollower
from grpodoctor.support.files.growing_files import Damage
from grpodoctor.support.files.packed_files import is_packed, packed_head, plain_name, unpack
from grpodoctor.support.files.regular_files import (
    MOST_ENTRIES,
    files_below,
    is_missing,
    unreadable,
)
from grpodoctor.support.progress import NoProgress, Progress

_PAUSE_FACTOR, _MAX_PAUSE = 20.0, 5.0
"""The pause between two searches is the duration of a search times the factor, at most so many
seconds."""

SUMMARY = "wandb-summary.json"
"""W&B's last values of a run, which look like one step of a log."""

_FILES_PER_PROGRESS = 200

_MARKDOWN = (".md", ".markdown")

_HEAD = 64 * 1024
"""Bytes that identify a format; a file that was shorter is checked again after it has grown."""


@dataclass(slots=True, eq=False)
class LogFile:
    """An open log file, and its position among the others."""

    reader: LogReader
    log: str
    """The log that the file belongs to; each launch of a job may write its own file."""
    position: str
    """Sorts the files of one log."""
    restarted: bool = False
    """Whether the file was replaced or truncated."""


class LogFiles:
    """The log files below a path.

    Args:
        path: a log, or a directory of logs; it need not exist yet.
        format_name: file format of all logs; detected if None.
        keys: keys of the step and the time in a row.
        dumps: reader of the rollout dumps among the files.
        progress: receives the names of the files while they are searched for logs.
    """

    def __init__(
        self,
        path: Path,
        format_name: str | None,
        keys: RowKeys,
        dumps: DumpFollower | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._path, self._format, self._keys = path, format_name, keys
        self._dumps, self._progress = dumps, progress or NoProgress()
        self._files: dict[Path, LogFile] = {}
        self._rejected: dict[Path, int] = {}
        """Files that are no logs, and their sizes when they were checked."""
        self._next_search = 0.0
        self._is_following = False
        """Whether an earlier search found a log."""
        self._unpacked_folder: Path | None = None
        self.notes: list[str] = []
        """Files that were not read, and other decisions."""
        self.damage: list[Damage] = []
        """Files and folders below the path that cannot be read."""
        self._left_out: set[Path] = set()
        self.is_cut_off = False
        """Whether the path has more files and folders than are searched."""
        self.size = 0
        """Total size of the open files in bytes, at the last search."""

    @property
    def first(self) -> Path | None:
        """The first file of the log; None without one, or if it was unpacked from another file."""
        files = self.in_order()
        path = files[0].reader.path if files else None
        is_unpacked = path and self._unpacked_folder and path.is_relative_to(self._unpacked_folder)
        return None if is_unpacked else path

    @property
    def readers(self) -> list[LogReader]:
        """The readers of all open files."""
        return [file.reader for file in self._files.values()]

    def in_order(self) -> list[LogFile]:
        """The open files; the files of one log in the order in which they were written."""
        return sorted(self._files.values(), key=lambda file: (file.log, file.position))

    def _total_size(self) -> int:
        sizes = [0]
        for reader in self.readers:
            with contextlib.suppress(OSError):
                sizes.append(reader.path.stat().st_size)
        return sum(sizes)

    def written_at(self) -> float:
        """Unix time of the latest write to any file; 0 if there is none."""
        times = [0.0]
        for path in self._files:
            with contextlib.suppress(OSError):
                times.append(path.stat().st_mtime)
        return max(times)

    def search(self) -> tuple[list[str], list[str]]:
        """Search the path unless that was done recently; return new logs and logs that are gone.

        Raises:
            RunError: if a log or a folder cannot be read.
        """
        self._notice_replaced()
        start = time.monotonic()
        if self._files and start < self._next_search:
            return [], []
        before = {file.log for file in self._files.values()}
        for number, (path, size) in enumerate(self._candidates()):
            if number % _FILES_PER_PROGRESS == _FILES_PER_PROGRESS - 1 and not self._files:
                self._progress.update(0, detail=f"search, file {number + 1:,}: {path.name}")
            self._consider(path, size)
        self._close_older_checkpoints()
        self._close_notebooks()
        self.size = self._total_size()
        end = time.monotonic()
        self._next_search = end + min(_MAX_PAUSE, _PAUSE_FACTOR * (end - start))
        after = {file.log for file in self._files.values()}
        self._is_following = bool(self._files)
        return sorted(after - before), sorted(before - after)

    def are_replaced(self) -> bool:
        """Whether all files that were read are gone and there are others."""
        if not self._files or any(path.exists() for path in self._files):
            return False
        return any(path not in self._files for path, _ in self._candidates())

    def _notice_replaced(self) -> None:
        for file in self._files.values():
            if file.reader.was_replaced():
                file.reader.rewind()
                file.restarted = True

    def _candidates(self) -> Iterator[tuple[Path, int]]:
        """Non-empty files and their sizes; an empty file does not tell its format yet."""
        try:
            paths = [self._path] if self._path.is_file() else self._files_below()
        except OSError as error:
            if is_missing(error):
                return  # does not exist yet, or is being removed
            raise unreadable(Path(error.filename or self._path), error) from error
        for path in paths:
            try:
                size = path.stat().st_size
            except OSError:
                continue
            if size:
                yield path, size

    def _files_below(self) -> list[Path]:
        return list(
            files_below(self._path, on_unreadable=self._leave_out, on_cut_off=self._cut_off)
        )

    def _cut_off(self) -> None:
        if not self.is_cut_off:
            self.is_cut_off = True
            self.notes.append(
                f"the search for logs stopped after {MOST_ENTRIES:,} files and folders; pass the "
                "directory of the run, or its log"
            )

    def _leave_out(self, path: Path, error: OSError) -> None:
        """Report a file or folder that cannot be read, and go on with the others.

        Raises:
            RunError: if it is the path that the user gave.
        """
        if path == self._path:
            raise unreadable(path, error, "log") from error
        if path not in self._left_out:
            self._left_out.add(path)
            reason = f"cannot be read: {error.strerror or error}"
            self.damage.append(Damage(str(path.relative_to(self._path)), 0, reason))

    def _consider(self, path: Path, size: int) -> None:
        rejected = self._rejected.get(path)
        if path in self._files or (
            rejected is not None and (size == rejected or rejected >= _HEAD)
        ):
            return
        reader = self._open_packed(path) if is_packed(path) else self._open(path)
        if reader is None:
            self._rejected[path] = size
            return
        log_format = log_format_named(reader.name)
        log, position = log_format.part_of(plain_name(path)) if log_format else (str(path), "")
        self._files[path] = LogFile(reader, log, position)
        if path.name == SUMMARY:
            self.notes.append(
                f"{SUMMARY} has only the last value of each key, so one step; the history is in "
                "run-*.wandb next to it, or in an export of W&B"
            )

    def _open(self, path: Path) -> LogReader | None:
        try:
            if self._format is None and self._is_dump(path):
                return None
            return open_log(path, self._keys, self._format or self._format_of_report(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._leave_out(path, error)
            return None

    def _format_of_report(self, path: Path) -> str | None:
        """The format of a Markdown file that the user names; None for any other file.

        Output that is saved in a code block is a log. The documents in a directory are none: their
        examples would be read as rows.
        """
        is_named = path == self._path and path.suffix.lower() in _MARKDOWN
        return CONSOLE if is_named else None

    def _is_dump(self, path: Path) -> bool:
        """Whether the file is a rollout dump, which `dumps` then reads."""
        named = self._path in (path, path.parent)
        return self._dumps is not None and self._dumps.claim(path, named=named)

    def _open_packed(self, path: Path) -> LogReader | None:
        """Unpack a file to a temporary folder and open it.

        A compressed file that appears while a run is followed is a rotated log that was already
        read.
        """
        if self._is_following or (self._format is None and self._is_dump(path)):
            return None
        if self._unpacked_folder is None:
            self._unpacked_folder = Path(tempfile.mkdtemp(prefix="grpodoctor-"))
            weakref.finalize(self, shutil.rmtree, self._unpacked_folder, ignore_errors=True)
        relative = path.name if path == self._path else str(path.relative_to(self._path))
        target = plain_name(self._unpacked_folder / relative)
        try:
            if not is_log(target, packed_head(path), self._format):
                return None
            unpack(path, target, self.notes.append)
        except OSError as error:
            self._leave_out(path, error)
            return None
        except RunError as error:
            if path == self._path:
                raise
            self.notes.append(f"not read: {error}")
            return None
        return open_log(target, self._keys, self._format)

    def _close_older_checkpoints(self) -> None:
        """Keep only the newest trainer state of each run: it contains the older ones."""
        newest: dict[Path, Path] = {}
        states = [path for path, file in self._files.items() if file.reader.name == TRAINER_STATE]
        for path in states:
            run = path.parent.parent if is_checkpoint(path.parent) else path.parent
            newest[run] = max(path, newest.get(run, path), key=progress_of)
        kept = set(newest.values())
        for path in states:
            if path not in kept and path.name == TRAINER_STATE_FILE:
                del self._files[path]
                self._rejected[path] = _HEAD

    def _close_notebooks(self) -> None:
        """Keep notebooks only if they are the only logs: they show what the logs contain."""
        notebooks = [path for path, file in self._files.items() if file.reader.name == NOTEBOOK]
        if len(notebooks) == len(self._files):
            return
        for path in notebooks:
            del self._files[path]
            self._rejected[path] = _HEAD
