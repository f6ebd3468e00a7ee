"""The writer process, which measures and writes for a recorder.

Started as `python -m grpodoctor.runs.recording.writer_process`.

A thread in the trainer would delay the training, since a process has one interpreter lock. So the
measurements, the JSON and the Parquet of a run are made here, at a lower priority, without torch or
transformers. The process does one job at a time. When its recorder exits, it writes the jobs that
it received completely, and exits too.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import cast

from grpodoctor.runs.recording.directory import append_line
from grpodoctor.runs.recording.jobs import (
    Job,
    JobDone,
    JobFailed,
    LineWritten,
    Ready,
    Reply,
    reason_of,
)
from grpodoctor.runs.recording.wire import Wire
from grpodoctor.runs.records import WRITER_PROCESS_LOCK
from grpodoctor.runs.rollouts import Depth, load_parquet, write_rollouts
from grpodoctor.support.files.locks import Lock

NICENESS = 5
"""On a busy machine the training takes precedence."""


class RunWriter:
    """Writes the jobs that it receives, in order.

    Args:
        directory: the run directory.
        lock: tells whether the directory still belongs to the run; None on ranks that write no
            lines.
        depth: how much of each response the rollouts files keep.
        worst: responses kept in full at depth `worst`.
        rank: rank of the trainer's process.
    """

    def __init__(
        self, directory: Path, lock: Lock | None, depth: Depth, worst: int, rank: int
    ) -> None:
        self._directory, self._lock = directory, lock
        self._depth, self._worst, self._rank = depth, worst, rank

    def serve(self, wire: Wire) -> None:
        """Write jobs until the other end is gone or a job fails."""
        try:
            if self._depth != "off":
                load_parquet()
            _reply(wire, Ready())
            while True:
                # The other end is this package and sends only jobs.
                self._write(cast("Job", wire.receive()), wire)
        except EOFError:
            return
        except Exception as error:  # noqa: BLE001 - the recorder reports it
            _reply(wire, JobFailed(reason_of(error)))

    def _write(self, job: Job, wire: Wire) -> None:
        line = job.to_line()
        if line is not None:
            self._check_directory()
            append_line(self._directory / job.file, line)
        _reply(wire, LineWritten())
        if job.rollouts is not None:
            write_rollouts(self._directory, job.rollouts, self._depth, self._worst, self._rank)
        _reply(wire, JobDone())

    def _check_directory(self) -> None:
        if self._lock is not None and not self._lock.is_in_place():
            raise FileNotFoundError(errno.ENOENT, "another run replaced the directory")


def _reply(wire: Wire, reply: Reply) -> None:
    """Send a reply; a recorder that is gone does not matter, its jobs are written in any case."""
    with suppress(OSError):
        wire.send(reply)


class _WithoutPandas(MetaPathFinder):
    """Hides pandas, which pyarrow would import to check whether a list is a series.

    That import takes longer than the rest of the start, and no list here is a series.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is not used by this process", name=fullname)


def main() -> None:
    """Serve the recorder at the other end of standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(
            number, signal.SIG_IGN
        )  # they stop the trainer, and its exit stops this process
    os.nice(NICENESS)
    sys.meta_path.insert(0, _WithoutPandas())
    directory, lock_fd, depth, worst, rank = sys.argv[1:]
    lock = None
    if lock_fd != "-":
        lock = Lock(Path(directory, WRITER_PROCESS_LOCK), int(lock_fd))
        lock.sign()
    wire = Wire(socket.socket(fileno=sys.stdin.fileno()))
    RunWriter(Path(directory), lock, cast("Depth", depth), int(worst), int(rank)).serve(wire)


if __name__ == "__main__":
    main()
