"""Opening a run directory for writing, and writing to it."""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import dataclass, replace
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
from grpodoctor.support.files import atomic_files
from grpodoctor.support.files.growing_files import LONGEST_LINE
from grpodoctor.support.files.locks import Lock, LockHeldError
from grpodoctor.vocabulary.knobs import Setting

_OWN_NAMES = {
    *(MANIFEST, STEPS, EVENTS, ROLLOUTS, MAILBOX, WRITER_LOCK, WRITER_PROCESS_LOCK),
    *("checkpoints", "config.toml"),  # a trainer may have written these before
}

WRITER_WAIT_SECONDS = 10.0
"""How long opening waits for the writer process of a killed run to write its last jobs."""


@dataclass(frozen=True, slots=True)
class OpenedDirectory:
    """A run directory that this process may write to."""

    lock: Lock
    """Marks that a run is recorded here; it ends with this process."""
    writer_process_lock: Lock
    """For the writer process: no other process may write until it has exited too."""
    last_step: int
    """The last recorded step; -1 if there is none."""
    knobs: dict[str, Setting]
    """Knobs of the resumed run; `run.json` keeps those of the first start."""

    def release(self) -> None:
        """Release both locks."""
        try:
            self.writer_process_lock.release()
        finally:
            self.lock.release()


def open_directory(directory: Path, manifest: Manifest, *, resume: bool) -> OpenedDirectory:
    """Prepare a directory for a run: locks, manifest, repaired files, first event.

    Raises:
        RunError: if another process records there, or the directory has other content, or a run
            that is not to be resumed.
        OSError: if it cannot be written.
    """
    refuse_other_content(directory)
    lock = take_run_lock(directory)
    try:
        writer_process_lock = _take_writer_process_lock(directory)
        try:
            step, knobs = _begin(directory, manifest, resume=resume)
        except BaseException:
            writer_process_lock.release()
            raise
    except BaseException:
        lock.release()
        raise
    return OpenedDirectory(lock, writer_process_lock, step, knobs)


def take_run_lock(directory: Path) -> Lock:
    """Mark a directory as in use by a run, recorded or not; it is created if it is missing.

    Raises:
        RunError: if another living process uses it, or it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return Lock.take(directory / WRITER_LOCK)
    except LockHeldError as holder:
        raise RunError(
            f"{holder} is already recording here",
            where=str(directory),
            remedy="choose another directory or stop that process",
        ) from None
    except OSError as error:
        raise RunError(
            f"cannot write here: {error.strerror}",
            where=str(directory),
            remedy="choose a writable directory",
        ) from error


def _take_writer_process_lock(directory: Path) -> Lock:
    try:
        return Lock.take(directory / WRITER_PROCESS_LOCK, WRITER_WAIT_SECONDS)
    except LockHeldError as holder:
        raise RunError(
            f"{holder} is still writing the last steps of a killed run",
            where=str(directory),
            remedy="wait until that process exits",
        ) from None


def _begin(directory: Path, manifest: Manifest, *, resume: bool) -> tuple[int, dict[str, Setting]]:
    """Write the manifest and the first event; return the last step and the resumed run's knobs."""
    steps = directory / STEPS
    holds_steps = steps.exists() and steps.stat().st_size > 0
    if holds_steps and not resume:
        raise RunError(
            "the directory already has a run",
            where=str(directory),
            remedy="choose another directory, or resume the run",
        )
    _remove_unfinished(directory)
    former = _former_manifest(directory) if holds_steps else None
    content = _identified(manifest, former).to_json()
    atomic_files.write_bytes(directory / MANIFEST, content, sync=True)
    for name in (STEPS, EVENTS):
        _repair(directory / name)
    atomic_files.sync_folder(directory)
    atomic_files.sync_folder(directory.parent)  # it may have been created by this run
    step = last_step(steps)
    body = {"pid": os.getpid(), "host": socket.gethostname()}
    event = Event("resumed" if holds_steps else "started", max(step, 0), body, time.time())
    append_line(directory / EVENTS, event.to_line())
    return step, dict(manifest.knobs) if holds_steps else {}


def refuse_other_content(directory: Path) -> None:
    """Refuse a path that exists and is not a run.

    Raises:
        RunError: if it is a file, or a directory with other content.
    """
    if not directory.exists():
        return
    if not directory.is_dir():
        raise RunError("not a directory", where=str(directory), remedy="choose a directory")
    names = {entry.name for entry in directory.iterdir()}
    foreign = sorted(name for name in names - _OWN_NAMES if not name.startswith("."))
    if foreign and not names & {MANIFEST, STEPS}:
        raise RunError(
            f"the directory has other content: {name_some(foreign)}",
            where=str(directory),
            remedy="choose an empty or a new directory",
        )


def _remove_unfinished(directory: Path) -> None:
    for folder in (directory, directory / ROLLOUTS):
        if folder.is_symlink():
            continue  # what is behind a link is not ours to delete
        for path in folder.glob(f".*{atomic_files.TEMPORARY_SUFFIX}"):
            path.unlink(missing_ok=True)


def _former_manifest(directory: Path) -> Manifest | None:
    try:
        return Manifest.from_json((directory / MANIFEST).read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _identified(manifest: Manifest, former: Manifest | None) -> Manifest:
    """Add the run's id and start time, or take those of the resumed run.

    A reader replays a resumed run from its first step, so the knobs of the first start are kept.
    """
    if former is not None:
        return replace(manifest, run_id=former.run_id, started=former.started, knobs=former.knobs)
    return replace(
        manifest,
        run_id=manifest.run_id or uuid.uuid4().hex,
        started=manifest.started or time.time(),
    )


def _repair(path: Path) -> None:
    """Create the file if it is missing, and end the half line of a killed writer."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            os.write(fd, b"\n")
    finally:
        os.close(fd)


def append_line(path: Path, line: bytes) -> None:
    """Append a line to an existing file in one write, so that readers never see mixed lines.

    The line is on disk when this returns, so it survives a power failure. The file is opened and
    closed for each line: closing makes a network file system publish the line to other machines,
    and opening notices a file that was removed.

    Raises:
        OSError: if the file is gone or the line cannot be written.
    """
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        rest = line
        while rest:  # a full disk may take a part; the next write then raises the reason
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def last_step(path: Path) -> int:
    """The step of the last valid line of a steps file; -1 if there is none."""
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
