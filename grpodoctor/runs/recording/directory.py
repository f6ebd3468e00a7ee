"""Opening a run directory for writing, and the two ways anything is written into it."""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from grpodoctor.errors import RunError, name_some
from grpodoctor.runs.records import (
    EVENTS,
    MAILBOX,
    MANIFEST,
    ROLLOUTS,
    STEPS,
    WRITER_LOCK,
    WRITER_PROCESS_LOCK,
    Event,
    Manifest,
    StepRecord,
)
from grpodoctor.support import atomic_files
from grpodoctor.support.growing_files import LONGEST_LINE
from grpodoctor.support.locks import Lock, LockHeldError
from grpodoctor.vocabulary.knobs import Setting

_FAMILIAR = {
    *(MANIFEST, STEPS, EVENTS, ROLLOUTS, MAILBOX, WRITER_LOCK, WRITER_PROCESS_LOCK),
    *("checkpoints", "config.toml"),  # a trainer may have put these there before
}

SCRIBE_PATIENCE = 10.0
"""Seconds that opening waits for the scribe of a killed run to write what it has received."""


@dataclass(frozen=True, slots=True)
class OpenedDirectory:
    """A run directory that is ours to write to."""

    lock: Lock
    """Says that a run is recorded here; it ends with this process."""
    scribe_lock: Lock
    """For the process that writes: nobody else may, until it has ended too."""
    last_step: int
    """The last step that the directory holds; -1 if none."""
    knobs: dict[str, Setting]
    """Knobs in force that `run.json` does not say, since the run was resumed with others."""


def open_directory(directory: Path, manifest: Manifest, *, resume: bool) -> OpenedDirectory:
    """Make the directory a run's own: lock, manifest, empty or mended files, first event.

    Raises:
        RunError: if another process writes there, it holds something else, or a run that is not to
            be resumed.
        OSError: if it cannot be written.
    """
    refuse_other_content(directory)
    directory.mkdir(parents=True, exist_ok=True)
    lock = _writer_lock(directory)
    try:
        scribe_lock = _scribe_lock(directory)
        try:
            step, knobs = _begin(directory, manifest, resume=resume)
        except BaseException:
            scribe_lock.release()
            raise
    except BaseException:
        lock.release()
        raise
    return OpenedDirectory(lock, scribe_lock, step, knobs)


def _writer_lock(directory: Path) -> Lock:
    try:
        return Lock.take(directory / WRITER_LOCK)
    except LockHeldError as holder:
        raise RunError(
            f"{holder} is already recording here",
            where=str(directory),
            remedy="choose another directory or stop that process",
        ) from None


def _scribe_lock(directory: Path) -> Lock:
    try:
        return Lock.take(directory / WRITER_PROCESS_LOCK, SCRIBE_PATIENCE)
    except LockHeldError as holder:
        raise RunError(
            f"{holder} is still writing what a run that was killed has left",
            where=str(directory),
            remedy="wait for the end of that process",
        ) from None


def _begin(directory: Path, manifest: Manifest, *, resume: bool) -> tuple[int, dict[str, Setting]]:
    """Write what a run begins with; gives its last step and the knobs `run.json` does not say."""
    steps = directory / STEPS
    holds_steps = steps.exists() and steps.stat().st_size > 0
    if holds_steps and not resume:
        raise RunError(
            "the directory already holds a run",
            where=str(directory),
            remedy="choose another directory, or resume the run",
        )
    _remove_unfinished(directory)
    former = _former_manifest(directory) if holds_steps else None
    content = _identified(manifest, former).to_json()
    atomic_files.write_bytes(directory / MANIFEST, content, sync=True)
    for name in (STEPS, EVENTS):
        _mend(directory / name)
    step = last_step(steps)
    body = {"pid": os.getpid(), "host": socket.gethostname()}
    event = Event("resumed" if holds_steps else "started", max(step, 0), body, time.time())
    append_line(directory / EVENTS, event.to_line())
    return step, dict(manifest.knobs) if holds_steps else {}


def refuse_other_content(directory: Path) -> None:
    """Refuse a path at which something stands that is not a run.

    Raises:
        RunError: if it is a file, or a directory of something else.
    """
    if not directory.exists():
        return
    if not directory.is_dir():
        raise RunError("not a directory", where=str(directory), remedy="choose a directory")
    names = {entry.name for entry in directory.iterdir()}
    foreign = sorted(name for name in names - _FAMILIAR if not name.startswith("."))
    if foreign and not names & {MANIFEST, STEPS}:
        raise RunError(
            f"the directory holds something else: {name_some(foreign)}",
            where=str(directory),
            remedy="choose an empty or a new directory",
        )


def _remove_unfinished(directory: Path) -> None:
    for folder in (directory, directory / ROLLOUTS):
        for path in folder.glob(f".*{atomic_files.TEMPORARY_SUFFIX}"):
            path.unlink(missing_ok=True)


def _former_manifest(directory: Path) -> Manifest | None:
    try:
        return Manifest.from_json((directory / MANIFEST).read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _identified(manifest: Manifest, former: Manifest | None) -> Manifest:
    """The manifest with its run's id and start; those of the run it continues, if any.

    A reader replays a resumed run from its first step, so the knobs of its first start stay.
    """
    if former is not None:
        kept = {"run_id": former.run_id, "started": former.started, "knobs": former.knobs}
        return manifest.model_copy(update=kept)
    fresh = {"run_id": uuid.uuid4().hex, "started": time.time()}
    given = {name: getattr(manifest, name) or value for name, value in fresh.items()}
    return manifest.model_copy(update=given)


def _mend(path: Path) -> None:
    """Make the file if it is missing, and end the half line that a killed writer left."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            os.write(fd, b"\n")
    finally:
        os.close(fd)


def append_line(path: Path, line: bytes) -> None:
    """Append a line to an existing file by one write, so that no reader sees two lines mixed.

    The file is opened and closed for each line: that is when a network file system shows it to
    other machines, and a file that was removed is noticed instead of written to for ever.

    Raises:
        OSError: if the file is gone or the disk does not take the line.
    """
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        rest = line
        while rest:  # one round, unless a full disk takes a part; the next round says why
            rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)


def last_step(path: Path) -> int:
    """The step of the last good line of a steps file; -1 if it has none or does not exist."""
    if not path.exists():
        return -1
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LONGEST_LINE))
        lines = file.read().split(b"\n")
    for line in reversed(lines):
        try:
            return StepRecord.from_line(line).step
        except ValueError:
            continue
    return -1
