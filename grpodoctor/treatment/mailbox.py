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
from collections.abc import Iterator, Set
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

MOST_WAITING = 64
"""Requests that may wait for their step; a stage of a treatment has at most ten."""

MOST_LISTED = 10_000
"""Directory entries read per step; beyond that, requests may be taken out of order."""

MOST_STUCK = 1_000
"""Number of entries that could not be removed after which the mailbox is no longer read."""

MOST_PENDING = 1_000
"""Pending requests after which a sender stops, since no run reads them."""

_SUFFIX = ".json"
_FROM_EARLIER_RUN = "it was scheduled before this run began"
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
        self._waiting: dict[str, Request] = {}
        """Requests for a later step, by file name; their files stay in the mailbox."""
        self._takes = 0

    def take(self, step: int, ahead: int = 0) -> list[Request | Refused]:
        """Take the next requests out of the mailbox in the order of their names, then the refusals.

        Each file is removed before its request is applied. A file that cannot be removed would be
        applied again at every step, so it is refused once instead. A request for a later step stays
        in the mailbox until then. It is refused if it was there before this run began, and dropped
        when its treatment is undone at once.

        Args:
            step: the step that begins; a note about a later step is forged.
            ahead: steps that the run takes to apply a request.
        """
        self._takes += 1
        requests: list[Request | Refused] = []
        refused: list[Refused] = []
        try:
            for each in self._entries(step, ahead):
                if isinstance(each, Refused):
                    refused.append(each)
                else:
                    requests.append(each)
            requests.extend(shortened(refused))
        except Exception:  # noqa: BLE001 - no fault of a mailbox may reach the trainer
            return requests  # those that have been removed from the mailbox
        return requests

    def _entries(self, step: int, ahead: int) -> Iterator[Request | Refused]:
        """Take the entries out of the mailbox, one after the other.

        Raises:
            OSError: if the mailbox cannot be read.
        """
        if len(self._stuck) >= MOST_STUCK:
            return
        directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            owners = {os.geteuid(), 0, self._run_dir.stat().st_uid}
            if problem := _problem(os.fstat(directory), owners):
                yield from self._refuse_all(problem)
                return
            for name in self._next_names(directory, step + ahead):
                taken = self._take_one(directory, name, owners, step, ahead)
                if taken is not None:
                    yield taken
                    self._drop_undone(directory, taken)
        finally:
            with suppress(OSError):  # a network file system may report an old fault here
                os.close(directory)

    def _refuse_all(self, problem: str) -> list[Refused]:
        if self._warned:
            return []
        self._warned = True
        return [Refused(MAILBOX, f"the mailbox is not read: {problem}")]

    def _next_names(self, directory: int, due: int) -> list[str]:
        with os.scandir(directory) as entries:
            names = (
                entry.name
                for entry in islice(entries, MOST_LISTED)
                if entry.name.endswith(_SUFFIX)
                and not entry.name.startswith(".")
                and entry.name not in self._stuck
                and not self._is_early(entry.name, due)
            )
            return heapq.nsmallest(MOST_PER_CALL, names)

    def _is_early(self, name: str, due: int) -> bool:
        return name in self._waiting and self._waiting[name].from_step > due

    def _drop_undone(self, directory: int, taken: Request | Refused) -> None:
        """Drop the waiting requests of a treatment that is undone at once."""
        if isinstance(taken, Refused) or taken.kind != "undo" or taken.from_step >= 0:
            return
        dropped = [
            name for name, each in self._waiting.items() if each.treatment_id == taken.treatment_id
        ]
        for name in dropped:
            self._remove(directory, name)
            del self._waiting[name]

    def _take_one(
        self, directory: int, name: str, owners: Set[int], step: int, ahead: int
    ) -> Request | Refused | None:
        """The request of a file, which is removed; None if it has to wait."""
        try:
            found = _validated(_read(directory, name, owners), name, step)
        except OSError as error:
            found = Refused(printable(name), error.strerror or "unreadable")
        self._waiting.pop(name, None)
        if isinstance(found, Request) and found.from_step > step + ahead:
            if any(each.id == found.id for each in self._waiting.values()):
                self._remove(directory, name)  # another observer sent the same
                return None
            is_first = self._takes == 1
            if not is_first and len(self._waiting) < MOST_WAITING:
                self._waiting[name] = found
                return None
            why = _FROM_EARLIER_RUN if is_first else f"{MOST_WAITING} other requests are waiting"
            found = Refused(printable(name), why, found)
        # An entry that is not read for lack of memory stays, and the next step reads it.
        return found if self._remove(directory, name) else Refused(printable(name), _NOT_REMOVED)

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


def _validated(data: bytes, name: str, step: int) -> Request | Refused:
    """The request in the content of a file."""
    try:
        request = Request.from_bytes(data)
    except ValueError as error:
        return Refused(printable(name), printable(str(error), 200))
    if request.kind == "note" and request.as_event().step > step:
        return Refused(printable(name), f"a note about a step after the present step {step}")
    return request


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
