"""The recorder's side of the writer process."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from grpodoctor.runs.recording import jobs
from grpodoctor.runs.recording.wire import Wire
from grpodoctor.runs.rollouts import Depth
from grpodoctor.support.files.locks import Lock, close_in_forks
from grpodoctor.support.subprocesses import module_command, worker_environment

_EXIT_SECONDS = 1.0
"""How long a process that closed its end may take to exit."""

_exiting: set[subprocess.Popen[bytes]] = set()
"""Stopped processes that had not exited yet; a deleted `Popen` would warn that they are running."""


class WriterError(Exception):
    """The writer process could not write, or has died; the message says why."""


class WriterProcess:
    """A running writer process.

    It is a separate program and not a child of multiprocessing: a fork would copy the trainer with
    all its threads, and a spawn would import the user's main module a second time.

    Args:
        directory: the run directory, absolute.
        lock: passed on to the process, which holds it until it exits; None on ranks that write no
            lines.
        depth: how much of each response the rollouts files keep.
        worst: responses kept in full at depth `worst`.
        rank: rank of this process.

    Raises:
        OSError: if the process cannot be started.
    """

    def __init__(
        self, directory: Path, lock: Lock | None, depth: Depth, worst: int, rank: int
    ) -> None:
        ours, theirs = socket.socketpair()
        self._wire = Wire(ours)
        arguments = [directory, lock.fd if lock else "-", depth, worst, rank]
        with theirs:
            try:
                self.process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                    module_command("grpodoctor.runs.recording.writer_process", *arguments),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[lock.fd] if lock else [],
                    # Ctrl-C on the terminal must reach only the trainer. A separate session would
                    # get an equal share of the processors on Linux, whatever its priority.
                    process_group=0,
                    env=worker_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
                )
            except OSError:
                self._wire.close()
                raise
        close_in_forks(self)

    def wait_until_ready(self) -> None:
        """Wait until the process takes jobs.

        Raises:
            WriterError: if it could not start.
        """
        self._wait_for_reply()

    def write(self, job: jobs.Job, line_written: Callable[[], None]) -> None:
        """Have a job written.

        Args:
            job: the job; its arrays must not change.
            line_written: called when its line is on disk, before its rollouts are.

        Raises:
            WriterError: if it was not written.
            pickle.PicklingError, TypeError, AttributeError: if it cannot be pickled.
        """
        try:
            self._wire.send(job)
        except OSError as error:
            self._wait_for_reply(error)
        self._wait_for_reply()
        line_written()
        self._wait_for_reply()

    def _wait_for_reply(self, lost: OSError | None = None) -> None:
        try:
            reply = self._wire.receive()
        except EOFError:
            raise WriterError(self._exit_reason()) from lost
        if isinstance(reply, jobs.JobFailed):
            raise WriterError(reply.why)

    def _exit_reason(self) -> str:
        try:
            code = self.process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "the writer process does not respond"
        by = f" by {signal.Signals(-code).name}" if code < 0 else ""
        return f"the writer process was ended{by} (exit code {code})"

    def give_up(self) -> None:
        """Stop waiting for replies; callable from any thread."""
        self._wire.shut()

    def stop(self, timeout: float) -> None:
        """Close the connection, so that the process exits; wait at most `timeout` seconds."""
        self._wire.shut()
        self._wire.close()
        _exiting.add(self.process)
        with suppress(subprocess.TimeoutExpired):  # it exits later
            self.process.wait(timeout)
        for process in tuple(_exiting):
            if process.poll() is not None:
                _exiting.discard(process)

    def forget(self) -> None:
        """Close the copy in a fork; the writer process is not the fork's child."""
        self._wire.close()
        self.process.returncode = 0
