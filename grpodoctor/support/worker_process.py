"""Helper processes that answer requests and can be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import weakref
from multiprocessing.connection import Connection, Pipe
from typing import Any

from grpodoctor.support.subprocesses import kill_group, module_command, worker_environment

_STDERR = 2
_EXIT_SECONDS = 5.0
_POLL_SECONDS = 0.5
"""Interval at which a wait for a reply checks that the process is alive."""


class WorkerProcess:
    """A module of this package, run as a process that answers one request at a time.

    The process starts with the first request. It ends when this object is deleted, or when this
    process ends for any reason.

    Args:
        module: dotted name; its main program calls `parent_connection` and `send_reply`.
        show_output: let the process write to this process's stderr; otherwise output is discarded.
    """

    def __init__(self, module: str, *, show_output: bool = False) -> None:
        self._module, self._show_output = module, show_output
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    @property
    def pid(self) -> int | None:
        """Process id; None before the first request and after `close`."""
        return self._process.pid if self._process else None

    def request(self, message: object, seconds: float) -> Any:
        """Send a request and wait for the reply.

        The process is killed if it does not reply. The next request starts a new one.

        Args:
            message: any picklable object.
            seconds: longest wait, on the clock.

        Raises:
            TimeoutError: if there is no reply in time.
            EOFError: if the process ends.
            OSError: if it cannot be started.
        """
        process, connection = self._running()
        try:
            connection.send(message)
            return _receive(process, connection, seconds)
        except TimeoutError:
            self.close(wait_seconds=0.0)
            raise
        except (EOFError, OSError) as error:
            self.close()
            raise EOFError(f"{self._module} ended") from error

    def close(self, wait_seconds: float = _EXIT_SECONDS) -> None:
        """End the process: ask it to exit, and kill it and its children after a wait."""
        if self._process is not None:
            self._finalizer.detach()
            _end(*self._running(), wait_seconds)
            self._process = self._connection = None

    def _running(self) -> tuple[subprocess.Popen[bytes], Connection]:
        if self._process is None or self._connection is None:
            ours, theirs = Pipe()
            with theirs:
                try:
                    self._process = self._start(theirs)
                except OSError:
                    ours.close()
                    raise
            self._connection = ours
            self._finalizer = weakref.finalize(
                self, _end, self._process, self._connection, _EXIT_SECONDS
            )
        return self._process, self._connection

    def _start(self, theirs: Connection) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own module
            module_command(self._module, theirs.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=_STDERR if self._show_output else subprocess.DEVNULL,
            stderr=None if self._show_output else subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,  # Ctrl-C in the terminal is for this process only
            env=worker_environment(),
        )


def _receive(process: subprocess.Popen[bytes], connection: Connection, seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        if connection.poll(min(max(left, 0.0), _POLL_SECONDS)):
            return json.loads(connection.recv_bytes())
        if left <= 0:
            raise TimeoutError
        if process.poll() is not None and not connection.poll():
            raise EOFError  # a child of the worker may still hold the pipe open


def _end(process: subprocess.Popen[bytes], connection: Connection, wait_seconds: float) -> None:
    connection.close()
    try:
        process.wait(wait_seconds)
    except subprocess.TimeoutExpired:
        kill_group(process)
        process.wait()


def parent_connection() -> Connection:
    """In the helper process: the connection over which requests come."""
    return Connection(int(sys.argv[1]))


def send_reply(connection: Connection, reply: object) -> None:
    """In the helper process: answer a request with a JSON value.

    Raises:
        SystemExit: if the parent is gone, which needs no report.
    """
    try:
        connection.send_bytes(json.dumps(reply).encode())
    except ConnectionError:
        raise SystemExit from None
