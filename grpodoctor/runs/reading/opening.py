"""Opening whatever a training job left behind: a run of our own recorder, or foreign logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from grpodoctor.errors import RunError
from grpodoctor.frameworks.translation import UnusedKeys
from grpodoctor.runs.reading.framework_follower import FrameworkFollower, ReadOptions
from grpodoctor.runs.reading.native_run import DamageLog, NativeFollower, Poll, read_run
from grpodoctor.runs.reading.no_run_error import no_run_error
from grpodoctor.runs.records import MANIFEST, STEPS, Event, Manifest, StepRecord
from grpodoctor.runs.rollout_dumps.dumped_responses import ResponseRecord
from grpodoctor.runs.rollout_dumps.self_check import SelfCheck
from grpodoctor.support.damage import Damage
from grpodoctor.support.directory_walk import files_below
from grpodoctor.support.growing_files import Tail


class RunFollower(Protocol):
    """A run that may still grow, in whatever format."""

    path: Path

    def poll(self, *, final: bool = False) -> Poll:
        """What is new since the poll before; at once if nobody writes any more."""


class OpenedRun(Protocol):
    """A run on disk, in whatever format."""

    path: Path
    manifest: Manifest
    events: list[Event]

    @property
    def steps(self) -> Iterator[StepRecord]:
        """The steps in file order."""

    @property
    def damage(self) -> list[Damage]:
        """The first damaged lines, once the steps were read."""

    @property
    def damaged_lines(self) -> int:
        """How many there are in all."""


@dataclass
class FrameworkRun:
    """A run that another framework logged, read once from its beginning to its end."""

    path: Path
    manifest: Manifest
    follower: FrameworkFollower
    events: list[Event] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was decided about the log, and why."""
    _first: list[StepRecord] = field(default_factory=list)
    _damage: DamageLog = field(default_factory=DamageLog)

    @property
    def steps(self) -> Iterator[StepRecord]:
        """The steps, read as they are asked for."""
        yield from self._first
        self._first = []
        more = True
        while more:
            poll = self.follower.poll(final=True)
            self.take(poll)
            yield from poll.steps
            more = poll.more or bool(poll.steps)

    def take(self, poll: Poll) -> None:
        """Note what a poll brought beside steps."""
        self.notes += poll.notes
        self._damage.note(poll.damage)

    @property
    def damage(self) -> list[Damage]:
        """The first damaged lines, once the steps were read."""
        return self._damage.first

    @property
    def damaged_lines(self) -> int:
        """How many there are in all."""
        return self._damage.count

    def rollouts(self, step: int) -> Iterator[ResponseRecord]:
        """The responses that were dumped at a step, once the steps were read.

        Read anew from the dump, one at a time; of a very large step, only a part.
        """
        return self.follower.rollouts.rows(step)

    @property
    def unused_keys(self) -> UnusedKeys:
        """What of the log was not used, and why."""
        translator = self.follower.translator
        return translator.unused if translator else UnusedKeys()


def is_native(path: Path) -> bool:
    """Whether our own recorder wrote it."""
    if path.is_dir():
        return (path / STEPS).exists() or _is_own_manifest(path / MANIFEST)
    return path.name == STEPS or bool(_own_records(path))


def _is_own_manifest(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b'"schema_version"' in file.read(64 * 1024)
    except OSError:
        return False


def _own_records(path: Path) -> list[StepRecord]:
    return Tail(path, StepRecord.from_line).read().records if path.is_file() else []


def follow(path: Path, options: ReadOptions | None = None) -> RunFollower:
    """What follows a run; one that is not there yet is taken for our own recorder's."""
    named = options is not None and options.format is not None
    if not named and (not path.exists() or is_native(path) or not any(_files(path))):
        return NativeFollower(path)
    return FrameworkFollower(path, options)


def _files(path: Path) -> Iterator[Path]:
    return iter([path]) if path.is_file() else files_below(path)


def open_run(path: Path, options: ReadOptions | None = None) -> OpenedRun:
    """Open a run for reading, whoever wrote it.

    Raises:
        RunError: if there is nothing, or nothing that anybody can read.
        ConfigError: if the options name a format that nobody knows.
    """
    options = options or ReadOptions()
    if not path.exists():
        raise RunError("no such file or directory", where=str(path), remedy="check the path")
    if options.format is None and is_native(path):
        run = read_run(path)
        run.check = SelfCheck(run.path)
        return run
    return _open_foreign(path, options)


def _open_foreign(path: Path, options: ReadOptions) -> FrameworkRun:
    run = FrameworkRun(path, Manifest(framework="unknown"), FrameworkFollower(path, options))
    settled, more = False, True
    while not settled and more:
        poll = run.follower.poll(final=True)
        run.take(poll)
        run._first += poll.steps  # noqa: SLF001 - its own, before anybody else has it
        if poll.manifest is not None:
            run.manifest, settled = poll.manifest, True
        more = poll.more
    if not settled:
        raise no_run_error(path, run.damage)
    unread = run.follower.unread
    if unread and not (more or run._first or run.follower.translator):  # noqa: SLF001 - the same
        raise RunError(
            f"no rollout dump could be read; {unread[0]}",
            where=str(path)[:200],
            remedy="give a directory that holds whole ones, or the log",
        )
    return run
