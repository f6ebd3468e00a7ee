"""Recording a run from inside the trainer.

The trainer hands over a step and continues. A thread passes the step to the writer process, which
measures and writes it; a thread that did this itself would block the trainer's interpreter. The
trainer waits for the line of the previous step, at most `LINE_WAIT_SECONDS`, and before the first
step until the writer process has started, so a killed trainer loses at most the current step. If
the disk is too slow, rollouts are dropped first, then whole steps. Any error ends the recording
with one warning and does not affect the training.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from grpodoctor.errors import RunError
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.runs.recording.directory import OpenedDirectory, open_directory
from grpodoctor.runs.recording.jobs import EventJob, Job, StepJob, batch_bytes, reason_of
from grpodoctor.runs.recording.writer_client import WriterError, WriterProcess
from grpodoctor.runs.records import ROLLOUTS, Event, Manifest
from grpodoctor.runs.rollouts import Depth, prepare_rollouts
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Reading

LINE_WAIT_SECONDS = 0.25
"""How long a step waits for the earlier lines; after a timeout, no step waits until the writer has
caught up."""

MAX_QUEUE = 4096
"""Queue length from which steps and events are dropped. A job without arrays is one line."""

MAX_QUEUED_BYTES = 256 * 2**20
"""Bytes of arrays and texts in the queue from which steps with arrays are dropped."""

MAX_QUEUED_BYTES_FOR_ROLLOUTS = MAX_QUEUED_BYTES // 4
"""Bytes in the queue from which a new step's rollouts are dropped: they take longest to write."""

START_WAIT_SECONDS = 10.0
"""How long the first step waits for the writer process to start. It starts with the recorder, so a
training that loads a model first waits for nothing."""

LINES_WAIT_SECONDS = 10.0
"""How long a checkpoint waits for the lines of the steps before it."""

CLOSE_WAIT_SECONDS = 30.0
"""How long closing waits for the remaining jobs while the writer process finishes some."""

STALL_SECONDS = 5.0
"""How long closing waits for a writer process that finishes no job."""

EXIT_WAIT_SECONDS = 3.0
"""How long the writer process may take to exit."""

_log = logging.getLogger("grpodoctor")


class Recorder:
    """Records a run. Use `Recorder.open` as a context manager, or close it.

    Rank 0 writes steps, events and the manifest; other ranks write only their rollouts. Once
    recording has begun, nothing here raises into the trainer.
    """

    def __init__(
        self, directory: Path, opened: OpenedDirectory | None, depth: Depth, worst: int, rank: int
    ) -> None:
        self.failure: str | None = None
        """Why recording ended early; None if it did not."""
        self._directory, self._opened = directory, opened
        self._depth, self._worst, self._rank = depth, worst, rank
        self._knobs: dict[str, Setting] = opened.knobs if opened else {}
        """Knob changes that are in no line yet, including those of dropped steps."""
        self._last_step = self._current_step = opened.last_step if opened else -1
        self._cost: float | None = None
        self._dropped: dict[str, int] = {}
        self._jobs: deque[tuple[Job, int]] = deque()
        self._unwritten = self._queued_bytes = 0
        self._busy = self._late = self._closed = self._ready = False
        self._changed = threading.Condition()
        self._pid = os.getpid()
        self._start_deadline = time.monotonic() + START_WAIT_SECONDS
        self._close_at_exit = partial(self.close, finished=False)
        self._writer: WriterProcess | None = None
        self._thread = threading.Thread(target=self._work, name="grpodoctor-recorder", daemon=True)
        try:
            self._start()
        except Exception as error:  # noqa: BLE001 - the trainer boundary
            self.end(error)

    def _start(self) -> None:
        atexit.register(self._close_at_exit)
        self._writer = self._start_writer()
        try:
            self._thread.start()
        except BaseException:
            if self._writer is not None:
                self._writer.stop(EXIT_WAIT_SECONDS)
            raise

    def _start_writer(self) -> WriterProcess | None:
        lock = self._opened.writer_process_lock if self._opened else None
        if lock is None and self._depth == "off":
            return None
        try:
            return WriterProcess(self._directory, lock, self._depth, self._worst, self._rank)
        finally:
            if lock:
                lock.forget()  # the writer process holds it now

    @classmethod
    def open(
        cls,
        path: str | Path,
        manifest: Manifest,
        *,
        depth: Depth = "summary",
        worst: int = 8,
        rank: int = 0,
        resume: bool = False,
    ) -> Self:
        """Start a run in a directory, or with `resume` continue it.

        Args:
            path: the run directory; created if it does not exist.
            manifest: the description of the run. A resumed run keeps its id, its start time and
                its first knobs; `manifest.knobs` is then written with the next step.
            depth: how much of each response the rollouts files keep.
            worst: responses kept in full at depth `worst`.
            rank: rank of this process.
            resume: continue the run in the directory, if there is one.

        Raises:
            RunError: if another living process records there, if the directory has other content
                or a run that is not to be resumed, or if it cannot be written.
        """
        directory, opened = Path(path).absolute(), None
        try:
            if rank == 0:
                opened = open_directory(directory, manifest, resume=resume)
            if depth != "off":
                prepare_rollouts(directory)
        except OSError as error:
            if opened is not None:
                opened.release()
            raise RunError(
                f"cannot record here: {error.strerror}",
                where=str(directory),
                remedy="choose a writable directory",
            ) from error
        return cls(directory, opened, depth, worst, rank)

    def step(
        self,
        step: int,
        measured: StepBatch | Mapping[str, Reading],
        *,
        knobs: Mapping[str, Setting] | None = None,
        rollouts: RolloutBatch | None = None,
    ) -> None:
        """Record a step; return at once, or after a short wait if the previous line is not written.

        Args:
            step: step number.
            measured: the batch to measure, or finished readings. The arrays must not change
                afterwards.
            knobs: knobs that changed before this step.
            rollouts: the responses of this rank; by default those of the `StepBatch`.
        """
        try:
            if not self._idle():
                self._step(step, measured, knobs or {}, rollouts)
        except Exception as error:  # noqa: BLE001 - the trainer boundary
            self.end(error)

    def _step(
        self,
        step: int,
        measured: StepBatch | Mapping[str, Reading],
        knobs: Mapping[str, Setting],
        rollouts: RolloutBatch | None,
    ) -> None:
        self._wait_for_start()
        began = time.perf_counter()
        self._knobs.update(knobs)
        if rollouts is None and isinstance(measured, StepBatch):
            rollouts = measured.rollouts
        kept = None if self._depth == "off" else rollouts
        ours = measured if self._opened else None
        self._last_step = step
        if ours is not None or kept is not None:
            self._wait_for_lines()
            job = StepJob(step, ours, kept, dict(self._knobs), time.time(), self._cost)
            if self._put(job):
                self._knobs, self._cost = {}, None
        self._cost = (self._cost or 0.0) + time.perf_counter() - began

    def event(self, kind: str, step: int, body: Mapping[str, object] | None = None) -> None:
        """Record an event, in order with the steps; ranks above 0 write none."""
        try:
            if self._opened is not None and not self._idle():
                began = time.perf_counter()
                line = Event(kind, step, dict(body or {}), time.time()).to_line()
                self._put(EventJob(step, line))
                self._cost = (self._cost or 0.0) + time.perf_counter() - began
        except Exception as error:  # noqa: BLE001 - the trainer boundary
            self.end(error)

    def _wait_for_start(self) -> None:
        """Wait until the writer process has started, but not beyond the deadline."""
        with self._changed:
            wait = max(0.0, self._start_deadline - time.monotonic())
            self._changed.wait_for(lambda: self._ready or self.failure is not None, wait)

    def _wait_for_lines(self, timeout: float = LINE_WAIT_SECONDS) -> None:
        """Wait until all lines so far are on disk; not again after a timeout, until they are."""
        with self._changed:
            if not self._late:
                self._late = not self._changed.wait_for(self._lines_written, timeout)

    def _lines_written(self) -> bool:
        return self._unwritten == 0 or self.failure is not None

    def _put(self, job: Job) -> bool:
        """Queue a job, without rollouts if much is queued; return whether it was queued."""
        with self._changed:
            if self._idle():
                return False
            if job.rollouts is not None and self._queued_bytes >= MAX_QUEUED_BYTES_FOR_ROLLOUTS:
                self._drop(ROLLOUTS, job.step)
                if job.measured is None:
                    return False
                job = replace(job, rollouts=None)
            size = batch_bytes(job)
            if len(self._jobs) >= MAX_QUEUE or (size and self._queued_bytes >= MAX_QUEUED_BYTES):
                self._drop(job.file, job.step)
                return False
            self._jobs.append((job, size))
            self._queued_bytes += size
            self._unwritten += 1
            self._changed.notify_all()
            return True

    def _idle(self) -> bool:
        """Whether nothing is recorded any more; a fork has no recording thread."""
        return self._closed or self.failure is not None or os.getpid() != self._pid

    def _drop(self, what: str, step: int) -> None:
        if not self._dropped:
            _log.warning(
                "recording is too slow: step %d is missing from %s, and more may follow; use a "
                "faster disk or a lower rollout depth (%s)",
                *(step, what, self._directory),
            )
        self._dropped[what] = self._dropped.get(what, 0) + 1

    def _work(self) -> None:
        """In the thread: have all jobs written, then end the writer process."""
        try:
            self._work_all()
        except Exception as error:  # noqa: BLE001 - the trainer boundary
            self.end(error)
        try:
            if self._writer is not None:
                self._writer.stop(EXIT_WAIT_SECONDS if self.failure is None else 0.0)
        except Exception as error:  # noqa: BLE001 - the trainer boundary
            self.end(error)

    def _work_all(self) -> None:
        if self._writer is not None:
            self._writer.wait_until_ready()
        with self._changed:
            self._ready = True
            self._changed.notify_all()
        while self._work_once():
            pass

    def _work_once(self) -> bool:
        """Write one job; returning frees its batch."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed or self.failure)
            if not self._jobs:
                return False
            job, size = self._jobs.popleft()
            self._queued_bytes -= size
            self._busy = True
        self._current_step = job.step
        if self._writer is not None:
            self._writer.write(job, self._line_written)
        with self._changed:
            self._busy = False
            self._changed.notify_all()
        return True

    def _line_written(self) -> None:
        with self._changed:
            self._unwritten -= 1
            self._late &= self._unwritten > 0
            self._changed.notify_all()

    def end(self, error: Exception) -> None:
        """End the recording after an error; the first one is reported in one warning.

        Everything that a training calls here catches its errors and passes them on to this
        function. It raises nothing. The callers use no context manager: entering one allocates
        memory, which can fail before the manager is there to catch it.
        """
        try:
            self._fail(error)
        except Exception:  # noqa: BLE001 - without memory, or in a log handler of the user
            self.failure = self.failure or "recording ended"

    def _fail(self, error: Exception) -> None:
        with self._changed:
            first = self.failure is None
            self.failure = self.failure or "recording ended"
        reason = str(error) if isinstance(error, WriterError) else reason_of(error)
        with suppress(OSError):  # a directory that cannot be examined exists
            if not self._directory.exists():
                reason = "the run directory was removed"
        with self._changed:
            if first:
                self.failure = f"recording ended at step {max(self._current_step, 0)}: {reason}"
            self._jobs.clear()
            self._unwritten = self._queued_bytes = 0
            self._busy = False
            self._changed.notify_all()
        if first:
            _log.warning(
                "%s (%s); the training continues unrecorded: fix the cause and resume to record",
                *(self.failure, self._directory),
            )

    def flush(self, timeout: float = LINES_WAIT_SECONDS) -> bool:
        """Wait until everything is written; return False on a timeout or an error."""
        if os.getpid() != self._pid:
            return True
        with self._changed:
            done = self._changed.wait_for(lambda: not (self._jobs or self._busy), timeout)
        return done and self.failure is None

    def catch_up(self) -> None:
        """Wait until all lines are on disk; not again after a timeout, until they are."""
        try:
            if not self._idle():
                self._wait_for_lines(LINES_WAIT_SECONDS)
        except Exception as error:  # noqa: BLE001 - the trainer boundary
            self.end(error)

    def close(self, *, finished: bool = True) -> None:
        """Write the remaining jobs, within `CLOSE_WAIT_SECONDS`, and release the directory.

        Args:
            finished: whether the run is complete; the journal then has a `finished` event.
        """
        try:
            if self._closed or os.getpid() != self._pid:
                return
            self._finish(finished=finished)
        except Exception as error:  # noqa: BLE001 - the trainer boundary
            self.end(error)
        try:
            if self._opened is not None:
                self._opened.lock.release()  # a hanging writer process keeps its own lock
            atexit.unregister(self._close_at_exit)
        except Exception as error:  # noqa: BLE001 - the trainer boundary
            self.end(error)

    def _finish(self, *, finished: bool) -> None:
        """Have the remaining jobs written, and end the thread and the writer process."""
        is_stuck = not self._drain()
        if self._dropped:
            self.event("warning", max(self._last_step, 0), {"not_recorded": self._dropped})
        if finished:
            self.event("finished", max(self._last_step, 0))
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is None:  # it could not be started
            return
        if not is_stuck:
            self._thread.join(EXIT_WAIT_SECONDS)
        if self._thread.is_alive() and self._writer is not None:
            self._writer.give_up()  # the thread warns and exits
            self._thread.join(EXIT_WAIT_SECONDS)

    def _drain(self) -> bool:
        """Wait until everything is written; False if the writer process is too slow or stuck."""
        deadline = time.monotonic() + CLOSE_WAIT_SECONDS
        with self._changed:
            while any(before := self._pending()):
                wait = deadline - time.monotonic()
                if self._ready:
                    wait = min(wait, STALL_SECONDS)
                moved = partial(self._has_moved, before)
                if wait <= 0 or not self._changed.wait_for(moved, wait):
                    return False
        return True

    def _has_moved(self, before: tuple[int, bool, int]) -> bool:
        return self._pending() != before

    def _pending(self) -> tuple[int, bool, int]:
        """Jobs that wait, whether one is being written, and lines that are not on disk."""
        return len(self._jobs), self._busy, self._unwritten

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(finished=kind is None)
