"""Reading a run of the own recorder, once or while it is being written.

Runs are polled; file system notifications do not work on network file systems. Live and offline
reading share all code that interprets the files.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from grpodoctor.errors import RunError, name_some
from grpodoctor.runs.reading.poll import DamageSummary, Poll
from grpodoctor.runs.records import (
    EVENTS,
    MANIFEST,
    SCHEMA_VERSION,
    STEPS,
    Event,
    Manifest,
    StepRecord,
)
from grpodoctor.runs.rollout_dumps.self_check import SelfCheck
from grpodoctor.runs.rollouts import read_rollouts
from grpodoctor.support.files.growing_files import LONGEST_LINE, Chunk, Damage, T, Tail
from grpodoctor.support.files.regular_files import is_missing, translated_os_errors, unreadable
from grpodoctor.support.progress import NoProgress, Progress

if TYPE_CHECKING:
    import pyarrow as pa

POLL_BYTES = 1024 * 1024
"""Bytes of a file that one poll reads at most, about a quarter of a second of work: the first steps
of a long run are shown early, and a live screen stays responsive."""

POLL_RECORDS = 4096
"""Lines of a file that one poll parses at most, valid or damaged."""


class _ManifestFile:
    """`run.json`, read again whenever it was replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._signature: tuple[int, int, int] | None = None

    def forget(self) -> None:
        """Return the manifest again at the next read."""
        self._signature = None

    def was_removed(self) -> bool:
        """Whether a manifest that was read is gone; a new one replaces it without a gap."""
        if self._signature is None:
            return False
        try:
            self._path.stat()
        except OSError as error:
            return is_missing(error)
        return False

    def read(self) -> tuple[Manifest | None, list[Damage]]:
        """Return the manifest if it is new or has changed, and its damage.

        Raises:
            RunError: if a newer version wrote it, or it cannot be read.
        """
        try:
            status = self._path.stat()
            if not stat.S_ISREG(status.st_mode):
                return None, []
            signature = (status.st_mtime_ns, status.st_ino, status.st_size)
            if signature == self._signature:
                return None, []
            with self._path.open("rb") as file:
                text = file.read(LONGEST_LINE)
        except (FileNotFoundError, NotADirectoryError):
            return None, []
        except OSError as error:
            raise unreadable(self._path, error) from error
        self._signature = signature
        return self._parse(text)

    def _parse(self, text: bytes) -> tuple[Manifest | None, list[Damage]]:
        try:
            manifest = Manifest.from_json(text)
        except ValueError as error:
            return None, [Damage(self._path.name, 0, " ".join(str(error).split())[:200])]
        if manifest.schema_version > SCHEMA_VERSION:
            raise RunError(
                f"a newer grpodoctor wrote the run: its format is {manifest.schema_version}, this "
                f"version reads up to {SCHEMA_VERSION}",
                where=str(self._path),
                remedy="upgrade grpodoctor",
            )
        return manifest, []


class NativeFollower:
    """Reads a run that is being written, or that will be.

    Args:
        path: the run directory, which may not exist yet, or its steps file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = _directory_of(Path(path))
        self._manifest = _ManifestFile(self.path / MANIFEST)
        self._steps = Tail(self.path / STEPS, StepRecord.from_line)
        self._events = Tail(self.path / EVENTS, Event.from_line)
        self._run_id: str | None = None
        self._begin()

    def _begin(self) -> None:
        self._check = SelfCheck(self.path)
        self._pending_events: list[Event] = []
        self._has_events = False

    def poll(self, *, final: bool = False) -> Poll:
        """Return what is new, in an amount that keeps a screen responsive.

        The newest step waits briefly for its rollouts. Events wait with it, and while there are
        more steps to read: the end of a run is no news before its last step. Its start is.

        Args:
            final: whether the run has ended, so that waiting is pointless.

        Raises:
            RunError: if the run cannot be read, or a newer version wrote it.
        """
        # All three, because a directory that is being removed loses its files in any order.
        files = (self._steps.was_replaced, self._events.was_replaced, self._manifest.was_removed)
        poll = Poll(restarted=any(is_gone() for is_gone in files))
        if poll.restarted:
            self._manifest.forget()
        poll.manifest, poll.damage = self._manifest.read()
        if poll.manifest is not None:
            poll.restarted |= self._run_id not in (None, poll.manifest.run_id)
            self._run_id = poll.manifest.run_id
        if poll.restarted:
            self._steps.rewind()
            self._events.rewind()
            self._begin()
        steps = self._drain(self._steps, poll)
        self._pending_events += self._drain(self._events, poll)
        poll.steps, more = self._check.live(steps, final=final and not poll.more)
        poll.more |= more
        poll.damage += self._check.take_damage()
        poll.pending = self._check.is_waiting
        poll.events = self._due_events(is_complete=not (poll.pending or poll.more))
        return poll

    def _due_events(self, *, is_complete: bool) -> list[Event]:
        """Take the events whose steps have been read.

        Args:
            is_complete: whether all steps have been read.
        """
        pending = self._pending_events
        is_start = bool(pending) and not self._has_events and pending[0].kind == "started"
        count = len(pending) if is_complete else int(is_start)
        due, self._pending_events = pending[:count], pending[count:]
        self._has_events |= bool(due)
        return due

    @staticmethod
    def _drain(tail: Tail[T], poll: Poll) -> list[T]:
        records: list[T] = []
        size = lines = 0
        chunk = Chunk[T](more=True)
        while chunk.more and size < POLL_BYTES and lines < POLL_RECORDS:
            chunk = tail.read()
            records += chunk.records
            poll.damage += chunk.damage
            size += chunk.size
            lines += len(chunk.records) + len(chunk.damage)
        poll.more |= chunk.more
        return records


def _directory_of(path: Path) -> Path:
    return path.parent if path.name == STEPS and not path.is_dir() else path


class NativeRun:
    """A recorded run on disk; it can be read several times.

    Args:
        path: the run directory, or the steps file if there is nothing else.
        steps_file: the file with the steps.
        manifest: the manifest; the default if the run has none.
    """

    def __init__(self, path: Path, steps_file: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.events: list[Event] = []
        self.check: SelfCheck | None = None
        """Recomputes readings from the rollouts; None to skip that."""
        self.progress: Progress = NoProgress()
        """Receives the bytes of the steps file that were read."""
        self._steps_file = steps_file
        self._other_damage, self._step_damage = DamageSummary(), DamageSummary()

    @property
    def steps(self) -> Iterator[StepRecord]:
        """The steps in file order, read lazily: memory does not grow with their number.

        Raises:
            RunError: if a file cannot be read.
        """
        self._step_damage = DamageSummary()
        tail = Tail(self._steps_file, StepRecord.from_line, each_line_is_a_row=True)
        records = _read_all(tail, self._step_damage, self._report_size)
        return records if self.check is None else self._checked(records, self.check)

    def _report_size(self, size: int) -> None:
        total = self._steps_file.stat().st_size
        self.progress.update(min(size, total), total=total, detail=STEPS)

    def _checked(self, records: Iterator[StepRecord], check: SelfCheck) -> Iterator[StepRecord]:
        with translated_os_errors(self.path):
            yield from check.offline(records)
            self._step_damage.note(check.take_damage())

    def read_events(self, manifest_damage: list[Damage]) -> None:
        """Read the events and take over the damage of the manifest."""
        self._other_damage.note(manifest_damage)
        events = Tail(self.path / EVENTS, Event.from_line)
        self.events = list(_read_all(events, self._other_damage))

    @property
    def damage(self) -> list[Damage]:
        """The first `MAX_DAMAGE` entries per file; complete once the steps were read."""
        return [*self._other_damage.first, *self._step_damage.first]

    @property
    def damaged_lines(self) -> int:
        """Number of damaged lines; complete once the steps were read."""
        return self._other_damage.count + self._step_damage.count

    def rollouts(self, step: int) -> pa.Table:
        """Return the rollouts of a step, all ranks.

        Raises:
            RunError: if the step has none, or a file cannot be read.
        """
        return read_rollouts(self.path, step)


def _read_all(
    tail: Tail[T], damage: DamageSummary, report_size: Callable[[int], None] = lambda _: None
) -> Iterator[T]:
    more, size = True, 0
    while more:
        chunk = tail.read()
        damage.note(chunk.damage)
        size += chunk.size
        if chunk.size:
            report_size(size)
        yield from chunk.records
        more = chunk.more


def read_run(path: str | Path) -> NativeRun:
    """Open a run of the own recorder.

    Args:
        path: the run directory, its steps file, or a file of steps elsewhere.

    Raises:
        RunError: if the path is missing, an empty directory, not a run, or a run of a newer
            version.
    """
    try:
        return _open_run(Path(path))
    except OSError as error:
        raise unreadable(Path(path), error) from error


def _open_run(given: Path) -> NativeRun:
    if not given.exists():
        raise RunError("no such file or directory", where=str(given), remedy="check the path")
    directory = _directory_of(given)
    if not directory.is_dir():
        return NativeRun(directory, _checked_steps_file(directory), Manifest())
    _refuse_other_content(directory)
    manifest, damage = _ManifestFile(directory / MANIFEST).read()
    run = NativeRun(directory, directory / STEPS, manifest or Manifest())
    run.read_events(damage)
    return run


def _refuse_other_content(directory: Path) -> None:
    names = sorted(entry.name for entry in directory.iterdir())
    if not names:
        raise RunError(
            "the directory is empty", where=str(directory), remedy="pass the directory of a run"
        )
    if MANIFEST not in names and STEPS not in names:
        raise RunError(
            f"the directory has no {MANIFEST} and no {STEPS}; it has: {name_some(names)}",
            where=str(directory),
            remedy="pass the directory of a run",
        )


def _checked_steps_file(path: Path) -> Path:
    if not Tail(path, StepRecord.from_line).read().records:
        raise RunError(
            "the file is not a run",
            where=str(path),
            remedy=f"pass the directory of a run, or its {STEPS}",
        )
    return path
