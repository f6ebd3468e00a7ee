"""Helper processes that answer requests and can be killed."""

from __future__ import annotations

import fcntl
import json
import os
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
        self._lifeline: int | None = None
        """Write end of a pipe that carries nothing; the kernel ends the process with it."""

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
        process, connection, _ = self._running()
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
        if self._process is None:
            return
        ending = self._finalizer.detach()
        self._process = self._connection = self._lifeline = None
        # None if another thread ends the process already, or an interrupted call did. A second end
        # would close a file descriptor that is closed, or that by now belongs to someone else.
        if ending is not None:
            process, connection, lifeline, _ = ending[2]
            _end(process, connection, lifeline, wait_seconds)

    def _running(self) -> tuple[subprocess.Popen[bytes], Connection, int]:
        if self._process is None or self._connection is None or self._lifeline is None:
            ours, theirs = Pipe()
            watched, lifeline = os.pipe()
            try:
                self._process = self._start(theirs, watched)
            except OSError:
                ours.close()
                os.close(lifeline)
                raise
            finally:
                theirs.close()
                os.close(watched)
            self._connection, self._lifeline = ours, lifeline
            self._finalizer = weakref.finalize(
                self, _end, self._process, ours, lifeline, _EXIT_SECONDS
            )
        return self._process, self._connection, self._lifeline

    def _start(self, theirs: Connection, watched: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own module
            module_command(self._module, theirs.fileno(), watched),
            stdin=subprocess.DEVNULL,
            stdout=_STDERR if self._show_output else subprocess.DEVNULL,
            stderr=None if self._show_output else subprocess.DEVNULL,
            pass_fds=[theirs.fileno(), watched],
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


def _end(
    process: subprocess.Popen[bytes], connection: Connection, lifeline: int, wait_seconds: float
) -> None:
    connection.close()
    try:
        process.wait(wait_seconds)
    except subprocess.TimeoutExpired:
        kill_group(process)
        process.wait()
    finally:
        os.close(lifeline)


def parent_connection() -> Connection:
    """In the helper process: the connection over which requests come."""
    _end_with_parent(int(sys.argv[2]))
    return Connection(int(sys.argv[1]))


def _end_with_parent(watched: int) -> None:
    """Let the kernel end this process once the other end of a pipe is closed.

    A thread that waits for the end needs the interpreter's lock, which native code may never give
    back. SIGIO comes from the kernel, and on Linux its default action is the end of the process;
    other systems may ignore it.
    """
    fcntl.fcntl(watched, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(watched, fcntl.F_SETFL, fcntl.fcntl(watched, fcntl.F_GETFL) | os.O_ASYNC)


def send_reply(connection: Connection, reply: object) -> None:
    """In the helper process: answer a request with a JSON value.

    Raises:
        SystemExit: if the parent is gone, which needs no report.
    """
    try:
        connection.send_bytes(json.dumps(reply).encode())
    except ConnectionError:
        raise SystemExit from None
