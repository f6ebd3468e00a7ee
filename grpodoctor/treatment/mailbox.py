"""The mailbox of a live run: one file per request, written atomically, validated on reading.

Every process that can write to the run directory can write to its mailbox. The run therefore reads
a limited number of small regular files per call, follows no links and validates every request. Only
the run's own user, root and the owner of the run directory may give orders: a mailbox that every
user may write to is not read, and no file of another user is. Requests are taken in the order of
their names, which begin with the time.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
import time
import uuid
from collections.abc import Set
from contextlib import suppress
from itertools import islice
from pathlib import Path

from grpodoctor.errors import RunError
from grpodoctor.runs.records import MAILBOX
from grpodoctor.support.files.atomic_files import write_bytes
from grpodoctor.support.safe_text import printable
from grpodoctor.treatment.requests import MOST_BYTES, Refused, Request, shortened

__all__ = ["Inbox", "Mailbox", "Refused", "Request"]

MOST_PER_CALL = 32
"""Requests taken per step; a treatment needs two, and a step must not wait for a flood."""

MOST_LISTED = 10_000
"""Directory entries read per step; beyond that, requests may be taken out of order."""

MOST_STUCK = 1_000
"""Number of entries that could not be removed after which the mailbox is no longer read."""

MOST_PENDING = 1_000
"""Pending requests after which a sender stops, since no run reads them."""

_SUFFIX = ".json"
_NOT_REMOVED = "the file cannot be removed and would be applied again at every step"


class Mailbox:
    """The sender's side of a mailbox.

    Args:
        run_dir: the run directory, which must exist when the first request is sent.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / MAILBOX
        self._latest = 0

    def send(self, request: Request) -> None:
        """Put a request into the mailbox atomically.

        Raises:
            RunError: if it cannot be written, or if a thousand requests are pending.
        """
        data = request.to_bytes()
        if len(data) > MOST_BYTES:
            raise RunError(
                f"the request of {len(data)} bytes is too large for the mailbox",
                where=str(self._path),
                remedy=f"send at most {MOST_BYTES} bytes",
            )
        try:
            self._make_room()
            write_bytes(self._path / self._next_name(), data, sync=True)
            _flush_directory(self._path)
        except OSError as error:
            raise RunError(
                f"cannot write to the mailbox: {error.strerror or error}",
                where=str(self._path),
                remedy="check that the run directory exists and is writable",
            ) from None

    def _make_room(self) -> None:
        self._path.mkdir(exist_ok=True)
        if self._path.is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link")
        with os.scandir(self._path) as entries:
            pending = sum(1 for _ in islice(entries, MOST_PENDING))
        if pending >= MOST_PENDING:
            raise RunError(
                f"{MOST_PENDING} requests are pending in the mailbox, and no run reads them",
                where=str(self._path),
                remedy="check that the run is alive; if it is not, remove this directory",
            )

    def _next_name(self) -> str:
        # Two requests may get the same clock reading, and clocks can go back.
        self._latest = max(self._latest + 1, time.time_ns())
        return f"{self._latest:020d}-{uuid.uuid4().hex[:8]}{_SUFFIX}"


def _flush_directory(path: Path) -> None:
    """Flush a directory to disk, so that new entries survive a power failure."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class Inbox:
    """The run's side of a mailbox. It never raises, so that a mailbox cannot end a training run.

    Args:
        run_dir: the run directory; it and its mailbox need not exist.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir, self._path = run_dir, run_dir / MAILBOX
        self._stuck: set[str] = set()
        self._warned = False
        """Whether the refusal of the whole mailbox was returned."""

    def take(self, step: int) -> list[Request | Refused]:
        """Take the next requests out of the mailbox in the order of their names, then the refusals.

        Each file is removed before its request is applied. A file that cannot be removed would be
        applied again at every step, so it is refused once instead.

        Args:
            step: the step that begins; a note about a later step is forged.
        """
        if len(self._stuck) >= MOST_STUCK:
            return []
        try:
            directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return []
        try:
            owners = {os.geteuid(), 0, self._run_dir.stat().st_uid}
            if problem := _problem(os.fstat(directory), owners):
                return self._refuse_all(problem)
            names = self._next_names(directory)
            taken = [self._take_one(directory, name, owners, step) for name in names]
        except (OSError, MemoryError):
            return []
        finally:
            with suppress(OSError):  # a network file system may report an old fault here
                os.close(directory)
        requests: list[Request | Refused] = [each for each in taken if isinstance(each, Request)]
        return requests + shortened([each for each in taken if isinstance(each, Refused)])

    def _refuse_all(self, problem: str) -> list[Request | Refused]:
        if self._warned:
            return []
        self._warned = True
        return [Refused(MAILBOX, f"the mailbox is not read: {problem}")]

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

    def _take_one(
        self, directory: int, name: str, owners: Set[int], step: int
    ) -> Request | Refused:
        shown = printable(name)
        try:
            data = _read(directory, name, owners)
        except OSError as error:
            data, reason = b"", error.strerror or "unreadable"
        else:
            reason = ""
        if not self._remove(directory, name):
            return Refused(shown, _NOT_REMOVED)
        if reason:
            return Refused(shown, reason)
        try:
            request = Request.from_bytes(data)
        except ValueError as error:
            return Refused(shown, printable(str(error), 200))
        if request.kind == "note" and request.as_event().step > step:
            return Refused(shown, f"a note about a step after {step}, the present one")
        return request

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


def _problem(directory: os.stat_result, owners: Set[int]) -> str:
    """Why a mailbox cannot be trusted; empty if it can."""
    if directory.st_mode & stat.S_IWOTH:
        return "every user may write to it; run chmod o-w on it"
    return "" if directory.st_uid in owners else "it belongs to another user"


def _read(directory: int, name: str, owners: Set[int]) -> bytes:
    """The content of a small regular file of one of these users.

    Raises:
        OSError: if it is anything else; `strerror` contains the reason.
    """
    _check_entry(os.stat(name, dir_fd=directory, follow_symlinks=False), owners)
    # It may have become a link or a pipe since: do not follow a link or block on a pipe.
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    try:
        _check_entry(os.fstat(file), owners)
        data = b""
        while len(data) <= MOST_BYTES and (part := os.read(file, MOST_BYTES + 1 - len(data))):
            data += part
    finally:
        os.close(file)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES} bytes")
    return data


def _check_entry(entry: os.stat_result, owners: Set[int]) -> None:
    if stat.S_ISLNK(entry.st_mode):
        raise OSError(errno.ELOOP, "a symbolic link")
    if not stat.S_ISREG(entry.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if entry.st_uid not in owners:
        raise OSError(errno.EPERM, "a file of another user")
    if entry.st_size > MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES} bytes")
