"""One writer to a run directory.

The lock is the operating system's, so that a killed writer leaves nothing behind that a person
would have to delete. The file's text only says whom to look for.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
import weakref
from pathlib import Path

import orjson

from grpodoctor.errors import RunError
from grpodoctor.runs.records import WRITER_LOCK

_HOLDER_BYTES = 4096


class WriterLock:
    """The right to write to a run directory, held until `release` or the end of the process.

    Args:
        directory: an existing directory.

    Raises:
        RunError: if another living process holds it; the message names its pid and host.
        OSError: if the file system refuses the lock file.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / WRITER_LOCK
        self._fd: int | None = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, _HOLDER_BYTES, 0)
            self._close()
            raise _taken(directory, holder) from None
        except OSError:
            self._close()
            raise
        self._sign()
        _held.add(self)

    def _sign(self) -> None:
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, orjson.dumps(holder), 0)

    @property
    def _descriptor(self) -> int:
        if self._fd is None:
            raise ValueError("the lock was released")
        return self._fd

    def is_in_place(self) -> bool:
        """Whether the directory still holds this lock: it may have been removed or replaced."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let the next writer in. The file stays: deleting it could delete a successor's."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            self._close()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def forget(self) -> None:
        """Close the copy that a fork made, which would outlive a killed parent and block others."""
        self._close()


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _forget_parents() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_parents)


def _taken(directory: Path, holder: bytes) -> RunError:
    try:
        data = orjson.loads(holder)
        who = f"process {int(data['pid'])} on {str(data['host'])[:60]}"
    except (ValueError, TypeError, KeyError):
        who = "another process"
    return RunError(
        f"{who} is already recording here",
        where=str(directory),
        remedy="choose another directory or stop that process",
    )
