"""The process that measures and writes for a recorder.

Started as `python -m grpodoctor.runs.recording.writer_process`.

Whatever a thread of the trainer computes, the training waits for, since a process has one
interpreter lock. So the arithmetic, the JSON and the Parquet of a run are done here, at a lower
priority, by a process that knows neither torch nor transformers. It does one job at a time, and
ends when its recorder does: of its own accord, after what it has received whole.
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
from grpodoctor.runs.recording.jobs import Job, JobDone, JobFailed, LineWritten, Reply, reason_of
from grpodoctor.runs.recording.wire import Wire
from grpodoctor.runs.records import WRITER_PROCESS_LOCK
from grpodoctor.runs.rollouts import Depth, load_parquet, write_rollouts
from grpodoctor.support.locks import Lock

NICENESS = 5
"""Where processors are scarce the training goes first."""


class RunWriter:
    """Writes the jobs that come over a wire, in order.

    Args:
        directory: the run's.
        lock: proves that the directory is still the run's; None on ranks that write no lines.
        depth: how much of each response the rollouts files keep.
        worst: responses kept in full at depth `worst`.
        rank: of the process that trains.
    """

    def __init__(
        self, directory: Path, lock: Lock | None, depth: Depth, worst: int, rank: int
    ) -> None:
        self._directory, self._lock = directory, lock
        self._depth, self._worst, self._rank = depth, worst, rank

    def serve(self, wire: Wire) -> None:
        """Work until the other end is gone, or a job fails."""
        try:
            if self._depth != "off":
                load_parquet()
            while True:
                # The wire joins this package with itself: only jobs come this way.
                self._do(cast("Job", wire.receive()), wire)
        except EOFError:
            return
        except Exception as error:  # noqa: BLE001 - the recorder's boundary, which tells of it
            _tell(wire, JobFailed(reason_of(error)))

    def _do(self, job: Job, wire: Wire) -> None:
        line = job.to_line()
        if line is not None:
            self._check_place()
            append_line(self._directory / job.file, line)
        _tell(wire, LineWritten())
        if job.rollouts is not None:
            write_rollouts(self._directory, job.rollouts, self._depth, self._worst, self._rank)
        _tell(wire, JobDone())

    def _check_place(self) -> None:
        if self._lock is not None and not self._lock.is_in_place():
            raise FileNotFoundError(errno.ENOENT, "another run stands in the directory")


def _tell(wire: Wire, reply: Reply) -> None:
    """Answer, if there is still somebody to hear it: what was received is written in any case."""
    with suppress(OSError):
        wire.send(reply)


class _WithoutPandas(MetaPathFinder):
    """Hides pandas: pyarrow would load it to see whether a list is a series.

    That takes longer than all the rest of starting; nothing here is one.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is not used here", name=fullname)


def main() -> None:
    """Serve the recorder that started this process and is at the other end of standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they end the trainer, whose end ends this process
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
