"""Locks of a run directory: one for the trainer that records, one for its writer process.

The operating system holds them, so a killed process leaves no stale lock. The text of a lock file
only names the process that holds it.
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

from grpodoctor.support.files.descriptors import OwnDescriptor

_HOLDER_BYTES = 4096
_RETRY_SECONDS = 0.02


class LockHeldError(Exception):
    """A living process holds the lock; the message names it."""


class Lock:
    """An exclusive lock, held until `release` or until all processes that share it have exited.

    Args:
        path: the lock file.
        fd: its open and locked file descriptor.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._own: OwnDescriptor | None = OwnDescriptor(fd)
        close_in_forks(self)

    @classmethod
    def take(cls, path: Path, timeout: float = 0.0) -> Self:
        """Take the lock, waiting at most `timeout` seconds.

        Raises:
            LockHeldError: if another living process holds it.
            OSError: if the lock file cannot be created or locked.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock_within(fd, timeout)
            lock = cls(path, fd)
            lock.sign()
        except BlockingIOError:
            holder = os.pread(fd, _HOLDER_BYTES, 0)
            os.close(fd)
            raise LockHeldError(_name(holder)) from None
        except BaseException:
            os.close(fd)  # an unreferenced lock would keep this process out too
            raise
        return lock

    @property
    def fd(self) -> int:
        """The locked file descriptor; a child process that inherits it shares the lock."""
        if self._own is None:
            raise ValueError("the lock was released")
        return self._own.fd

    def sign(self) -> None:
        """Write this process's id and host to the lock file."""
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, orjson.dumps(holder), 0)

    def is_in_place(self) -> bool:
        """Whether the path is still this lock's file; the directory may have been replaced."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self.fd))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock. The file stays: deleting it could delete the next holder's lock."""
        try:
            if self._own is not None and self._own.is_open():
                os.ftruncate(self._own.fd, 0)
        finally:
            self.forget()

    def forget(self) -> None:
        """Close this process's copy; processes that share the lock keep it."""
        own, self._own = self._own, None
        if own is not None and own.is_open():
            os.close(own.fd)


def _lock_within(fd: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_SECONDS)


def _name(holder: bytes) -> str:
    try:
        data = orjson.loads(holder)
        return f"process {int(data['pid'])} on {str(data['host'])[:60]}"
    except (ValueError, TypeError, KeyError):
        return "another process"


class Forgettable(Protocol):
    """An open resource that a forked child must close."""

    def forget(self) -> None:
        """Close this process's copy."""


_parent_resources: weakref.WeakSet[Forgettable] = weakref.WeakSet()


def close_in_forks(resource: Forgettable) -> None:
    """Close a resource in forked children; their copy would outlive a killed parent and block."""
    _parent_resources.add(resource)


def _forget_parent_resources() -> None:
    for resource in list(_parent_resources):
        resource.forget()


os.register_at_fork(after_in_child=_forget_parent_resources)
