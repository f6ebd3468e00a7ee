"""The locks of a run directory: one writer, and one process that writes for it.

They are the operating system's, so that a killed process leaves nothing behind that a person would
have to delete. The file's text only says whom to look for.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
import weakref
from pathlib import Path
from typing import Protocol, Self

import orjson

_HOLDER_BYTES = 4096
_RETRY = 0.02
"""Seconds between two looks at a lock that is held."""


class LockHeldError(Exception):
    """A living process holds the lock; the message names it."""


class Lock:
    """A right to a run directory, held until `release` or until all who share it have ended.

    Args:
        path: the lock file.
        fd: its open file, locked.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd: int | None = fd
        close_in_forks(self)

    @classmethod
    def take(cls, path: Path, patience: float = 0.0) -> Self:
        """Take the lock, waiting for it up to `patience` seconds.

        Raises:
            LockHeldError: if another living process holds it.
            OSError: if the file system refuses the lock file.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock_within(fd, patience)
        except BlockingIOError:
            holder = os.pread(fd, _HOLDER_BYTES, 0)
            os.close(fd)
            raise LockHeldError(_name(holder)) from None
        except OSError:
            os.close(fd)
            raise
        lock = cls(path, fd)
        lock.sign()
        return lock

    @property
    def fd(self) -> int:
        """The locked file, which a child process may inherit to share the lock."""
        if self._fd is None:
            raise ValueError("the lock was released")
        return self._fd

    def sign(self) -> None:
        """Say in the file that this process holds it."""
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, orjson.dumps(holder), 0)

    def is_in_place(self) -> bool:
        """Whether the directory still holds this lock: it may have been removed or replaced."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self.fd))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let the next one in. The file stays: deleting it could delete a successor's."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            self.forget()

    def forget(self) -> None:
        """Leave the lock to those who share it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _lock_within(fd: int, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY)


def _name(holder: bytes) -> str:
    try:
        data = orjson.loads(holder)
        return f"process {int(data['pid'])} on {str(data['host'])[:60]}"
    except (ValueError, TypeError, KeyError):
        return "another process"


class Forgettable(Protocol):
    """Something open that a fork must not keep open."""

    def forget(self) -> None:
        """Close this process's copy."""


_ours: weakref.WeakSet[Forgettable] = weakref.WeakSet()


def close_in_forks(thing: Forgettable) -> None:
    """Have the copy closed that a fork makes: it would outlive a killed parent and block others."""
    _ours.add(thing)


def _forget_parents() -> None:
    for thing in list(_ours):
        thing.forget()


os.register_at_fork(after_in_child=_forget_parents)
