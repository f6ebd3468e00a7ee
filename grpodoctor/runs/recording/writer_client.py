"""The recorder's end of the process that measures and writes."""

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
from grpodoctor.support.locks import Lock, close_in_forks
from grpodoctor.support.subprocesses import module_command, worker_environment

_REAPING_PATIENCE = 1.0
"""Seconds that a process which has closed its end may take to be gone."""


class WriterError(Exception):
    """The scribe could not write, or is no more; the message says why."""


class WriterProcess:
    """A running scribe.

    It is a program of its own rather than a child of multiprocessing: a fork copies a trainer with
    all its threads, and a spawn imports the user's main module a second time.

    Args:
        directory: the run's, absolute.
        lock: handed to the scribe, which holds it as long as it lives; None for ranks that write
            no lines.
        depth: how much of each response the rollouts files keep.
        worst: responses kept in full at depth `worst`.
        rank: this process's rank.

    Raises:
        OSError: if it cannot be started.
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
                    # A terminal's Ctrl-C is for the trainer alone. Not a session of its own: Linux
                    # gives each session an equal share of the processors, whatever its priority.
                    process_group=0,
                    env=worker_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
                )
            except OSError:
                self._wire.close()
                raise
        close_in_forks(self)

    def write(self, job: jobs.Job, line_written: Callable[[], None]) -> None:
        """Have a job done.

        Args:
            job: what to write, whose arrays nobody changes.
            line_written: called when its line is on disk, before its rollouts are.

        Raises:
            WriterError: if it was not done.
            pickle.PicklingError, TypeError, AttributeError: if it cannot be handed over.
        """
        try:
            self._wire.send(job)
        except OSError as error:
            self._hear(error)
        self._hear()
        line_written()
        self._hear()

    def _hear(self, lost: OSError | None = None) -> None:
        try:
            reply = self._wire.receive()
        except EOFError:
            raise WriterError(self._how_it_ended()) from lost
        if isinstance(reply, jobs.JobFailed):
            raise WriterError(reply.why)

    def _how_it_ended(self) -> str:
        try:
            code = self.process.wait(_REAPING_PATIENCE)
        except subprocess.TimeoutExpired:
            return "the process that writes does not answer"
        by = f" by {signal.Signals(-code).name}" if code < 0 else ""
        return f"the process that writes was ended{by} (exit code {code})"

    def give_up(self) -> None:
        """Wait for no answer any more; from any thread."""
        self._wire.shut()

    def end(self, patience: float) -> None:
        """Let the scribe end, and wait for that up to `patience` seconds."""
        self._wire.shut()
        self._wire.close()
        with suppress(subprocess.TimeoutExpired):  # it still ends, when it can
            self.process.wait(patience)

    def forget(self) -> None:
        """Close the copy that a fork made; the process is not the fork's child."""
        self._wire.close()
        self.process.returncode = 0
