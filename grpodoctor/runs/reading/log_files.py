"""The log files of a run: found as they appear, opened, and read in the order of their writing."""

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
from grpodoctor.runs.log_formats.base import LogReader
from grpodoctor.runs.log_formats.catalogue import is_log, log_format_named, open_log
from grpodoctor.runs.log_formats.trainer_state import TRAINER_STATE, TRAINER_STATE_FILE, progress_of
from grpodoctor.runs.rollout_dumps.dump_follower import DumpFollower
from grpodoctor.support.directory_walk import files_below
from grpodoctor.support.packed_files import is_packed, packed_head, plain_name, unpack

_REST, _LONGEST_REST = 20.0, 5.0
"""Between two searches lie so many times as long as one takes, and no more seconds than these."""

SUMMARY = "wandb-summary.json"
"""W&B's last values of a run, which look like a step of a log."""

_HEAD = 64 * 1024
"""Bytes by which a file's format is known; one that was shorter is looked at again."""


@dataclass(slots=True)
class LogFile:
    """An open file, and its place among the others."""

    reader: LogReader
    log: str
    """What it is a part of: each launch of a job may write a file of its own."""
    place: str
    """Where it stands in that log."""
    begun_anew: bool = False
    """Whether its beginning is another one than it was: it was replaced or cut short."""


class LogFiles:
    """What there is to read under a path.

    Args:
        path: a log, or a directory of them; it need not exist yet.
        format_name: the format that all of them are in; found out if None.
        keys: under which keys rows say their step and time.
        dumps: what reads the rollout dumps among them.
    """

    def __init__(
        self, path: Path, format_name: str | None, keys: RowKeys, dumps: DumpFollower | None = None
    ) -> None:
        self._path, self._format, self._keys = path, format_name, keys
        self._dumps = dumps
        self._files: dict[Path, LogFile] = {}
        self._passed: dict[Path, int] = {}
        """What is no log, and how long it was then."""
        self._next_look = 0.0
        self._followed = False
        """Whether there was a log at an earlier look."""
        self._aside: Path | None = None
        """Where packed logs are unpacked to; it goes when this does."""
        self.notes: list[str] = []
        """What could not be unpacked."""

    @property
    def readers(self) -> list[LogReader]:
        """What is open."""
        return [each.reader for each in self._files.values()]

    def in_order(self) -> list[LogFile]:
        """What is open, the parts of a log in the order in which they were written."""
        return sorted(self._files.values(), key=lambda each: (each.log, each.place))

    def written_at(self) -> float:
        """Unix time of the latest writing to any of them; 0 if there is none."""
        times = [0.0]
        for path in self._files:
            with contextlib.suppress(OSError):
                times.append(path.stat().st_mtime)
        return max(times)

    def look(self) -> tuple[list[str], list[str]]:
        """Search the path, unless that was done just now; the logs that are new, and those gone.

        Raises:
            RunError: if a log cannot be read.
        """
        self._notice_replaced()
        began = time.monotonic()
        if self._files and began < self._next_look:
            return [], []
        before = {each.log for each in self._files.values()}
        for path, size in self._candidates():
            self._consider(path, size)
        self._close_older_checkpoints()
        now = time.monotonic()
        self._next_look = now + min(_LONGEST_REST, _REST * (now - began))
        after = {each.log for each in self._files.values()}
        self._followed = bool(self._files)
        return sorted(after - before), sorted(before - after)

    def are_gone(self) -> bool:
        """Whether nothing of what was read is there any more, but something else is."""
        if not self._files or any(path.exists() for path in self._files):
            return False
        return any(path not in self._files for path, _ in self._candidates())

    def _notice_replaced(self) -> None:
        for file in self._files.values():
            if file.reader.was_replaced():
                file.reader.rewind()
                file.begun_anew = True

    def _candidates(self) -> Iterator[tuple[Path, int]]:
        """Files, and how long they are; what is empty says nothing of its format yet."""
        try:
            paths = [self._path] if self._path.is_file() else list(files_below(self._path))
        except OSError:
            return  # not there yet, or a directory that is being removed
        for path in paths:
            try:
                size = path.stat().st_size
            except OSError:
                continue
            if size:
                yield path, size

    def _consider(self, path: Path, size: int) -> None:
        passed = self._passed.get(path)
        if path in self._files or (passed is not None and (size == passed or passed >= _HEAD)):
            return
        reader = self._open_packed(path) if is_packed(path) else self._open(path)
        if reader is None:
            self._passed[path] = size
            return
        found = log_format_named(reader.name)
        log, place = found.part_of(plain_name(path)) if found else (str(path), "")
        self._files[path] = LogFile(reader, log, place)
        if path.name == SUMMARY:
            self.notes.append(
                f"{SUMMARY} holds nothing but the last value of each key: one step; the history is"
                " in run-*.wandb beside it, or in what W&B exports"
            )

    def _open(self, path: Path) -> LogReader | None:
        if self._format is None and self._claimed(path):
            return None
        try:
            return open_log(path, self._keys, self._format)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(path, error) from error

    def _claimed(self, path: Path) -> bool:
        """Whether it is a rollout dump, and read as such."""
        named = self._path in (path, path.parent)
        return self._dumps is not None and self._dumps.claim(path, named=named)

    def _open_packed(self, path: Path) -> LogReader | None:
        """The reader of what is packed in a file, unpacked aside.

        What appears while a run is followed is what was read already, rotated away.
        """
        if self._followed or (self._format is None and self._claimed(path)):
            return None
        if self._aside is None:
            self._aside = Path(tempfile.mkdtemp(prefix="grpodoctor-"))
            weakref.finalize(self, shutil.rmtree, self._aside, ignore_errors=True)
        below = path.name if path == self._path else str(path.relative_to(self._path))
        target = plain_name(self._aside / below)
        try:
            if not is_log(target, packed_head(path), self._format):
                return None
            unpack(path, target, self.notes.append)
        except OSError as error:
            raise _unreadable(path, error) from error
        except RunError as error:
            if path == self._path:
                raise
            self.notes.append(f"not read: {error}")
            return None
        return open_log(target, self._keys, self._format)

    def _close_older_checkpoints(self) -> None:
        """Of the states of one run only the newest is read: it holds all that the others do."""
        newest: dict[Path, Path] = {}
        states = [path for path, each in self._files.items() if each.reader.name == TRAINER_STATE]
        for path in states:
            run = path.parent.parent if is_checkpoint(path.parent) else path.parent
            newest[run] = max(path, newest.get(run, path), key=progress_of)
        kept = set(newest.values())
        for path in states:
            if path not in kept and path.name == TRAINER_STATE_FILE:
                del self._files[path]
                self._passed[path] = _HEAD


def _unreadable(path: Path, error: OSError) -> RunError:
    return RunError(
        f"cannot read the log: {error.strerror or error}",
        where=str(path)[:200],
        remedy="check the path and its permissions",
    )
