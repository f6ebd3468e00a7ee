"""The mailbox of a live run: requests as files, written whole, read with suspicion.

Anybody who can write into the run directory can write into its mailbox, so the run's side takes a
bounded number of small regular files per call, follows no link, and believes nothing that it has
not checked. Requests are taken in the order of their names, which begin with the time.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
import time
import uuid
from itertools import islice
from pathlib import Path

from grpodoctor.errors import RunError
from grpodoctor.runs.records import MAILBOX
from grpodoctor.support.safe_text import printable
from grpodoctor.treatment.requests import MOST_BYTES, Refused, Request

__all__ = ["Inbox", "Mailbox", "Refused", "Request"]

MOST_PER_CALL = 32
"""Requests taken in one step: a treatment needs two, and a step must not wait for a flood."""

MOST_LISTED = 10_000
"""Directory entries looked at in one step; in a larger flood the order of names is not kept."""

MOST_STUCK = 1_000
"""Entries that could not be removed, after which the mailbox is left alone."""

MOST_PENDING = 1_000
"""Requests that wait to be taken, after which a sender stops: nobody reads them."""

_SUFFIX = ".json"


class Mailbox:
    """The sender's side.

    Args:
        run_dir: the directory of the run, which must exist when the first request is sent.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / MAILBOX
        self._latest = 0

    def send(self, request: Request) -> None:
        """Put a request into the mailbox, whole or not at all.

        Raises:
            RunError: if it cannot be written, or nobody has taken the last thousand.
        """
        data = request.to_bytes()
        if len(data) > MOST_BYTES:
            raise RunError(
                f"a request of {len(data)} bytes is too large for the mailbox",
                where=str(self._path),
                remedy=f"send at most {MOST_BYTES} bytes",
            )
        try:
            self._make_room()
            self._write(self._next_name(), data)
        except OSError as error:
            raise RunError(
                f"the mailbox cannot be written: {error.strerror or error}",
                where=str(self._path),
                remedy="check that the run directory exists and that you may write into it",
            ) from None

    def _make_room(self) -> None:
        self._path.mkdir(exist_ok=True)
        if self._path.is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link")
        with os.scandir(self._path) as entries:
            pending = sum(1 for _ in islice(entries, MOST_PENDING))
        if pending >= MOST_PENDING:
            raise RunError(
                f"{MOST_PENDING} requests wait in the mailbox and nobody takes them",
                where=str(self._path),
                remedy="is the run alive? Remove the directory if it is not",
            )

    def _next_name(self) -> str:
        # Two requests may fall into one tick of the clock, and clocks go back.
        self._latest = max(self._latest + 1, time.time_ns())
        return f"{self._latest:020d}-{uuid.uuid4().hex[:8]}{_SUFFIX}"

    def _write(self, name: str, data: bytes) -> None:
        aside = self._path / f".{name}.tmp"
        try:
            with aside.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(self._path / name)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        directory = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class Inbox:
    """The run's side. Nothing in it raises: a mailbox must not be able to end a training.

    Args:
        run_dir: the directory of the run; it and its mailbox need not exist.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / MAILBOX
        self._stuck: set[str] = set()

    def take(self) -> list[Request | Refused]:
        """Take the next requests out of the mailbox, in the order of their names.

        Each file is removed before it is obeyed: one that cannot be removed would be obeyed again
        at every step, and is refused once instead.
        """
        if len(self._stuck) >= MOST_STUCK:
            return []
        try:
            directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return []
        try:
            return [self._take_one(directory, name) for name in self._next_names(directory)]
        except OSError:
            return []
        finally:
            os.close(directory)

    def _next_names(self, directory: int) -> list[str]:
        with os.scandir(directory) as entries:
            names = (
                entry.name
                for entry in islice(entries, MOST_LISTED)
                if entry.name.endswith(_SUFFIX)
                and not entry.name.startswith(".")
                and entry.name not in self._stuck
            )
            return heapq.nsmallest(MOST_PER_CALL, names)

    def _take_one(self, directory: int, name: str) -> Request | Refused:
        shown = printable(name)
        try:
            data = _read(directory, name)
        except OSError as error:
            data, reason = b"", error.strerror or "unreadable"
        else:
            reason = ""
        if not self._remove(directory, name):
            return Refused(shown, "it cannot be removed, and would be obeyed again at every step")
        if reason:
            return Refused(shown, reason)
        try:
            return Request.from_bytes(data)
        except ValueError as error:
            return Refused(shown, printable(str(error), 200))

    def _remove(self, directory: int, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=directory)
        except OSError:
            try:
                os.rmdir(name, dir_fd=directory)
            except OSError:
                self._stuck.add(name)
                return False
        return True


def _read(directory: int, name: str) -> bytes:
    """The content of a small regular file.

    Raises:
        OSError: if it is anything else; `strerror` says what.
    """
    _check_entry(os.stat(name, dir_fd=directory, follow_symlinks=False))
    # It may have become a link or a pipe since: neither is followed, neither may block.
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    try:
        _check_entry(os.fstat(file))
        data = b""
        while len(data) <= MOST_BYTES and (part := os.read(file, MOST_BYTES + 1 - len(data))):
            data += part
    finally:
        os.close(file)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES} bytes")
    return data


def _check_entry(entry: os.stat_result) -> None:
    if stat.S_ISLNK(entry.st_mode):
        raise OSError(errno.ELOOP, "a symbolic link")
    if not stat.S_ISREG(entry.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if entry.st_size > MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES} bytes")
