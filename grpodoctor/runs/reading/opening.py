"""Opening a run of any origin: of the own recorder, or the logs of a framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from grpodoctor.errors import RunError
from grpodoctor.frameworks.unused_keys import UnusedKeys
from grpodoctor.runs.reading.framework_follower import FrameworkFollower
from grpodoctor.runs.reading.native_run import NativeFollower, read_run
from grpodoctor.runs.reading.no_run_error import no_run_error, too_many_files_error
from grpodoctor.runs.reading.poll import DamageSummary, Poll
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.records import (
    MANIFEST,
    STEPS,
    WRITER_LOCK,
    WRITER_PROCESS_LOCK,
    Event,
    Manifest,
    StepRecord,
)
from grpodoctor.runs.rollout_dumps.dumped_responses import ResponseRecord
from grpodoctor.runs.rollout_dumps.self_check import SelfCheck
from grpodoctor.support.files.growing_files import Damage, Tail
from grpodoctor.support.files.regular_files import files_below, open_regular, translated_os_errors
from grpodoctor.vocabulary.knobs import Setting


class RunFollower(Protocol):
    """A run of any origin that may still grow."""

    path: Path

    def poll(self, *, final: bool = False) -> Poll:
        """Return what is new since the previous poll; without waiting if `final`."""


class OpenedRun(Protocol):
    """A run of any origin on disk."""

    path: Path
    manifest: Manifest
    events: list[Event]

    @property
    def steps(self) -> Iterator[StepRecord]:
        """The steps in file order."""

    @property
    def damage(self) -> list[Damage]:
        """The first damage; complete once the steps were read."""

    @property
    def damaged_lines(self) -> int:
        """Number of damaged lines; complete once the steps were read."""


@dataclass
class FrameworkRun:
    """A run that a framework logged, read once from the first to the last step."""

    path: Path
    manifest: Manifest
    follower: FrameworkFollower
    events: list[Event] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Decisions made while reading the log, and their reasons."""
    _first_steps: list[StepRecord] = field(default_factory=list)
    _damage: DamageSummary = field(default_factory=DamageSummary)

    @classmethod
    def open(cls, path: Path, options: ReadOptions) -> FrameworkRun:
        """Read up to the first steps.

        Raises:
            RunError: if there is no log that can be read.
        """
        run = cls(path, Manifest(framework="unknown"), FrameworkFollower(path, options))
        detected, more = False, True
        while not detected and more:
            poll = run.follower.poll(final=True)
            run._take(poll)
            run._first_steps += poll.steps
            if poll.manifest is not None:
                run.manifest, detected = poll.manifest, True
            more = poll.more
        if not detected and run.follower.search_is_cut_off:
            raise too_many_files_error(path)
        if not detected and (reason := run.follower.wanted_rows.why_none()):
            raise RunError(reason[0], where=str(path)[:200], remedy=reason[1])
        if not detected:
            raise no_run_error(path, run.damage, options.format)
        failed = run.follower.failed_dumps
        if failed and not (more or run._first_steps or run.follower.translator):
            raise RunError(
                f"no rollout dump could be read; {failed[0]}",
                where=str(path)[:200],
                remedy="pass a directory with complete dumps, or the log",
            )
        return run

    @property
    def steps(self) -> Iterator[StepRecord]:
        """The steps, read lazily.

        Raises:
            RunError: if a file cannot be read.
        """
        with translated_os_errors(self.path):
            yield from self._first_steps
            self._first_steps = []
            more = True
            while more:
                poll = self.follower.poll(final=True)
                self._take(poll)
                yield from poll.steps
                more = poll.more or bool(poll.steps)

    def _take(self, poll: Poll) -> None:
        self.notes += poll.notes
        self._damage.note(poll.damage)

    @property
    def damage(self) -> list[Damage]:
        """The first damage; complete once the steps were read."""
        return self._damage.first

    @property
    def damaged_lines(self) -> int:
        """Number of damaged lines; complete once the steps were read."""
        return self._damage.count

    def rollouts(self, step: int) -> Iterator[ResponseRecord]:
        """Read the dumped responses of a step again, once the steps were read.

        Only a part of a very large step is returned.
        """
        return self.follower.rollouts.rows(step)

    @property
    def settings(self) -> Mapping[str, Setting]:
        """The framework's settings that were found, with dotted keys."""
        translator = self.follower.translator
        return translator.given if translator else {}

    @property
    def unused_keys(self) -> UnusedKeys:
        """The keys of the log that were not used, with reasons."""
        translator = self.follower.translator
        return translator.unused if translator else UnusedKeys()


def is_native(path: Path) -> bool:
    """Whether the own recorder wrote the run, or has begun to: its locks are its first files."""
    if path.is_dir():
        own = (STEPS, WRITER_LOCK, WRITER_PROCESS_LOCK)
        return any((path / name).exists() for name in own) or _is_native_manifest(path / MANIFEST)
    return path.name == STEPS or _has_native_steps(path)


def is_console_of_run(path: Path) -> bool:
    """Whether a file has the console output of a recorded run: `runs/mine.log` of `runs/mine`."""
    return path.suffix == ".log" and path.is_file() and is_native(path.with_suffix(""))


def _is_native_manifest(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return b'"schema_version"' in file.read(64 * 1024)
    except OSError:
        return False


def _has_native_steps(path: Path) -> bool:
    return path.is_file() and bool(Tail(path, StepRecord.from_line).read().records)


def follow(path: Path, options: ReadOptions | None = None) -> RunFollower:
    """Return a follower; a path that does not exist yet is taken for a run of the own recorder.

    Raises:
        RunError: if the path cannot be read.
        ConfigError: if the options name an unknown format.
    """
    format_is_named = options is not None and options.format is not None
    with translated_os_errors(path):
        if not format_is_named and (not path.exists() or is_native(path) or not _has_files(path)):
            return NativeFollower(path)
        return FrameworkFollower(path, options)


def log_of(path: Path, follower: object) -> Path:
    """The file that has the steps of a run, or the first of several.

    Args:
        path: the run.
        follower: what reads it, if it is the log of another framework.
    """
    if path.is_file():
        return path
    if isinstance(follower, FrameworkFollower):
        return follower.first_log or path
    return path / STEPS


def _has_files(path: Path) -> bool:
    return path.is_file() or any(files_below(path))


def open_run(path: Path, options: ReadOptions | None = None) -> OpenedRun:
    """Open a run of any origin.

    Raises:
        RunError: if there is nothing, or nothing that can be read.
        ConfigError: if the options name an unknown format.
    """
    options = options or ReadOptions()
    with translated_os_errors(path):
        if not path.exists():
            raise RunError("no such file or directory", where=str(path), remedy="check the path")
        if options.format is not None or not is_native(path):
            return FrameworkRun.open(path, options)
        run = read_run(path)
        run.check, run.progress = SelfCheck(run.path), options.progress
        return run
