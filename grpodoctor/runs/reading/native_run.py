"""Reading a run, once or again and again while it is being written.

Polling alone, no file system notifications: those do not cross a network file system. Live and
offline reading share every line of code that interprets the files.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from grpodoctor.errors import RunError, name_some
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
from grpodoctor.support.damage import Damage
from grpodoctor.support.growing_files import LONGEST_LINE, Chunk, T, Tail
from grpodoctor.support.regular_files import unreadable

if TYPE_CHECKING:
    import pyarrow as pa

POLL_BYTES = 8 * 1024 * 1024
"""Bytes that one poll reads of a file before it returns: a live screen must stay responsive."""

POLL_RECORDS = 4096
"""Lines that one poll interprets of a file, good or damaged."""

MOST_DAMAGE = 1000
"""Damaged lines that a run remembers one by one; it counts them all."""


@dataclass(slots=True)
class Poll:
    """What is new since the poll before."""

    manifest: Manifest | None = None
    """Set when it is new or has changed."""
    restarted: bool = False
    """Another run stands in the directory: forget what came before; this poll begins anew."""
    steps: list[StepRecord] = field(default_factory=list)
    """In file order. A step at or before its predecessor means that the run went back."""
    events: list[Event] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was decided about a foreign log, and why; a line each."""
    more: bool = False
    """There is more to read at once; poll again without waiting."""
    held: bool = False
    """Something may not be whole yet: a look in a moment gives it, whether or not more comes."""


class _ManifestFile:
    """`run.json`, looked at again when it was replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def forget(self) -> None:
        """Give the manifest again at the next look."""
        self._seen = None

    def read(self) -> tuple[Manifest | None, list[Damage]]:
        """The manifest if it is new or has changed, and what is wrong with it.

        Raises:
            RunError: if a newer version wrote it, or it cannot be read.
        """
        try:
            found = self._path.stat()
            if not stat.S_ISREG(found.st_mode):
                return None, []
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen == self._seen:
                return None, []
            with self._path.open("rb") as file:
                text = file.read(LONGEST_LINE)
        except (FileNotFoundError, NotADirectoryError):
            return None, []
        except OSError as error:
            raise unreadable(self._path, error) from error
        self._seen = seen
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
    """Reads a run that is being written, or is about to be.

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
        self._held_events: list[Event] = []

    def poll(self, *, final: bool = False) -> Poll:
        """What is new, as much as a screen can wait for.

        The newest step waits a moment for its rollouts, and what the journal says meanwhile with
        it.

        Args:
            final: whether nobody writes any more, so that nothing is worth waiting for.

        Raises:
            RunError: if the run cannot be read, or a newer version wrote it.
        """
        news = Poll(restarted=self._steps.was_replaced() or self._events.was_replaced())
        if news.restarted:
            self._manifest.forget()
        news.manifest, news.damage = self._manifest.read()
        if news.manifest is not None:
            news.restarted |= self._run_id not in (None, news.manifest.run_id)
            self._run_id = news.manifest.run_id
        if news.restarted:
            self._steps.rewind()
            self._events.rewind()
            self._begin()
        steps = self._drain(self._steps, news)
        self._held_events += self._drain(self._events, news)
        news.steps, more = self._check.live(steps, final=final and not news.more)
        news.more |= more
        news.damage += self._check.take_damage()
        news.held = self._check.holds
        if not news.held:
            news.events, self._held_events = self._held_events, []
        return news

    @staticmethod
    def _drain(tail: Tail[T], news: Poll) -> list[T]:
        records: list[T] = []
        size = lines = 0
        chunk = Chunk[T](more=True)
        while chunk.more and size < POLL_BYTES and lines < POLL_RECORDS:
            chunk = tail.read()
            records += chunk.records
            news.damage += chunk.damage
            size += chunk.size
            lines += len(chunk.records) + len(chunk.damage)
        news.more |= chunk.more
        return records


def _directory_of(path: Path) -> Path:
    return path.parent if path.name == STEPS and not path.is_dir() else path


@dataclass
class DamageLog:
    """Damage, all of it counted and the first of it remembered."""

    count: int = 0
    first: list[Damage] = field(default_factory=list)

    def note(self, damage: list[Damage]) -> None:
        """Take more of it."""
        self.count += len(damage)
        self.first += damage[: max(0, MOST_DAMAGE - len(self.first))]


class Run:
    """A run on disk, to be read as often as one likes.

    Args:
        path: its directory, or the steps file where that is all there is.
        steps_file: its steps.
        manifest: what it says about itself; the default where it says nothing.
    """

    def __init__(self, path: Path, steps_file: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.events: list[Event] = []
        self.check: SelfCheck | None = None
        """Sets beside the steps' readings what the rollouts say; nothing does if None."""
        self._steps_file = steps_file
        self._elsewhere, self._in_steps = DamageLog(), DamageLog()

    @property
    def steps(self) -> Iterator[StepRecord]:
        """The steps in file order, read as they are asked for: memory does not grow with them."""
        self._in_steps = DamageLog()
        records = _read_all(Tail(self._steps_file, StepRecord.from_line), self._in_steps)
        return records if self.check is None else self._checked(records, self.check)

    def _checked(self, records: Iterator[StepRecord], check: SelfCheck) -> Iterator[StepRecord]:
        yield from check.offline(records)
        self._in_steps.note(check.take_damage())

    def read_beside(self, manifest_damage: list[Damage]) -> None:
        """Read what stands beside the steps."""
        self._elsewhere.note(manifest_damage)
        events = Tail(self.path / EVENTS, Event.from_line)
        self.events = list(_read_all(events, self._elsewhere))

    @property
    def damage(self) -> list[Damage]:
        """The first `MOST_DAMAGE` of each kind; that of the steps once the steps were read."""
        return [*self._elsewhere.first, *self._in_steps.first]

    @property
    def damaged_lines(self) -> int:
        """How much there is in all."""
        return self._elsewhere.count + self._in_steps.count

    def rollouts(self, step: int) -> pa.Table:
        """The rollouts of a step, all ranks.

        Raises:
            RunError: if there are none for that step, or a file cannot be read.
        """
        return read_rollouts(self.path, step)


def _read_all(tail: Tail[T], damage: DamageLog) -> Iterator[T]:
    more = True
    while more:
        chunk = tail.read()
        damage.note(chunk.damage)
        yield from chunk.records
        more = chunk.more


def read_run(path: str | Path) -> Run:
    """Open a run for reading.

    Args:
        path: the run directory, its steps file, or a file of steps from elsewhere.

    Raises:
        RunError: if there is nothing, an empty directory, something else, or a run that a newer
            version wrote.
    """
    try:
        return _open_run(Path(path))
    except OSError as error:
        raise unreadable(Path(path), error) from error


def _open_run(given: Path) -> Run:
    if not given.exists():
        raise RunError("no such file or directory", where=str(given), remedy="check the path")
    directory = _directory_of(given)
    if not directory.is_dir():
        return Run(directory, _steps_elsewhere(directory), Manifest())
    _refuse_foreign(directory)
    manifest, damage = _ManifestFile(directory / MANIFEST).read()
    run = Run(directory, directory / STEPS, manifest or Manifest())
    run.read_beside(damage)
    return run


def _refuse_foreign(directory: Path) -> None:
    names = sorted(entry.name for entry in directory.iterdir())
    if not names:
        raise RunError(
            "the directory is empty", where=str(directory), remedy="give the directory of a run"
        )
    if MANIFEST not in names and STEPS not in names:
        raise RunError(
            f"the directory holds no {MANIFEST} and no {STEPS}; found: {name_some(names)}",
            where=str(directory),
            remedy="give the directory of a run",
        )


def _steps_elsewhere(path: Path) -> Path:
    if not Tail(path, StepRecord.from_line).read().records:
        raise RunError(
            "the file is not a run",
            where=str(path),
            remedy=f"give the directory of a run, or its {STEPS}",
        )
    return path
