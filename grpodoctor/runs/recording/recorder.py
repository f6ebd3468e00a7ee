"""Writing a run: the one place where training and its observation touch.

The trainer hands over a step and goes on. A thread passes it to another process, the scribe, which
measures and writes: a thread that did so itself would keep the training waiting for the
interpreter. The trainer waits only for the line of the step before, and for that only within
`PATIENCE`, so that a killed process has lost at most the step in flight. When the disk does not
keep up, rollouts are given up first, then whole steps. Whatever goes wrong ends the recording with
one warning; the training never notices.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from grpodoctor.errors import RunError
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.runs.recording.directory import OpenedDirectory, open_directory
from grpodoctor.runs.recording.jobs import EventJob, Job, StepJob, reason_of
from grpodoctor.runs.recording.writer_client import WriterError, WriterProcess
from grpodoctor.runs.records import ROLLOUTS, Event, Manifest
from grpodoctor.runs.rollouts import Depth, prepare_rollouts
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Reading

PATIENCE = 0.25
"""Seconds that a step waits for the lines before it; spent once until the writer caught up."""

MOST_ROLLOUTS_WAITING = 4
"""Jobs in the queue from which on a new step's rollouts are given up, once the scribe has begun."""

MOST_WAITING = 16
"""Jobs in the queue from which on steps and events are given up: each may hold a whole batch."""

STARTING_PATIENCE = 10.0
"""Seconds that a full queue may wait for the scribe to catch up with the beginning, once. No
training takes so many steps while a process starts; a loop that only records does."""

CLOSING_PATIENCE = 10.0
"""Seconds that closing waits for what is still to be written."""

LEAVING_PATIENCE = 3.0
"""Seconds that a scribe with nothing left to do may take to be gone."""

_log = logging.getLogger("grpodoctor")


class Recorder:
    """Records a run. Obtain one from `Recorder.open`; use it as a context manager or close it.

    Rank 0 writes steps, events and the manifest; other ranks write their rollouts only. Nothing
    here raises into the trainer once recording has begun.
    """

    def __init__(
        self, directory: Path, opened: OpenedDirectory | None, depth: Depth, worst: int, rank: int
    ) -> None:
        self.failure: str | None = None
        """Why recording ended early; None while all is well."""
        self._directory, self._opened = directory, opened
        self._depth, self._worst, self._rank = depth, worst, rank
        self._knobs: dict[str, Setting] = opened.knobs if opened else {}
        """Changes that no line has told yet; a step that was given up leaves its own here."""
        self._last_step = self._at = opened.last_step if opened else -1
        self._cost: float | None = None
        self._lost: dict[str, int] = {}
        self._jobs: deque[Job] = deque()
        self._unwritten = 0
        self._busy = self._late = self._closed = self._begun = False
        self._changed = threading.Condition()
        self._pid = os.getpid()
        self._close_at_exit = partial(self.close, finished=False)
        atexit.register(self._close_at_exit)
        self._scribe: WriterProcess | None = None
        with self._boundary():
            self._scribe = self._start_scribe()
        self._thread = threading.Thread(target=self._work, name="grpodoctor-recorder", daemon=True)
        self._thread.start()

    def _start_scribe(self) -> WriterProcess | None:
        lock = self._opened.scribe_lock if self._opened else None
        if lock is None and self._depth == "off":
            return None
        try:
            return WriterProcess(self._directory, lock, self._depth, self._worst, self._rank)
        finally:
            if lock:
                lock.forget()  # from here on it lives and dies with the scribe

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
        """Begin, or with `resume` continue, the run in a directory.

        Args:
            path: the run directory; made if it does not exist.
            manifest: what the run is. A resumed run keeps its id, its start and the knobs it
                started with; `manifest.knobs` then goes with the first step to come.
            depth: how much of each response the rollouts files keep.
            worst: responses kept in full at depth `worst`.
            rank: this process's rank.
            resume: continue the run that the directory holds, if it holds one.

        Raises:
            RunError: if another living process records there, the directory holds something else
                or a run that is not to be resumed, or it cannot be written.
        """
        directory = Path(path).absolute()
        try:
            opened = open_directory(directory, manifest, resume=resume) if rank == 0 else None
            if depth != "off":
                prepare_rollouts(directory)
        except OSError as error:
            raise RunError(
                f"cannot record here: {error.strerror}",
                where=str(directory),
                remedy="choose a directory that can be written",
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
        """Record a step: returns at once, or after `PATIENCE` if the step before is not written.

        Args:
            step: its number.
            measured: what is to be measured, or readings that are ready. Its arrays must not
                change any more.
            knobs: knobs that changed before this step.
            rollouts: the responses of this rank; those of a `StepBatch` need not be given again.
        """
        if self._idle():
            return
        with self._boundary():
            began = time.perf_counter()
            self._knobs.update(knobs or {})
            if rollouts is None and isinstance(measured, StepBatch):
                rollouts = measured.rollouts
            kept = None if self._depth == "off" else rollouts
            ours = measured if self._opened else None
            self._last_step = step
            if ours is not None or kept is not None:
                self._wait_for_lines()
                knobs = dict(self._knobs)
                if self._put(StepJob(step, ours, kept, knobs, time.time(), self._cost)):
                    self._knobs, self._cost = {}, None
            self._cost = (self._cost or 0.0) + time.perf_counter() - began

    def event(self, kind: str, step: int, body: Mapping[str, object] | None = None) -> None:
        """Record an event. It is written in order with the steps; ranks above 0 write none."""
        if self._opened is None or self._idle():
            return
        with self._boundary():
            began = time.perf_counter()
            line = Event(kind, step, dict(body or {}), time.time()).to_line()
            self._put(EventJob(step, line))
            self._cost = (self._cost or 0.0) + time.perf_counter() - began

    def _wait_for_lines(self) -> None:
        """Wait, within patience, until all lines handed over so far are on disk."""
        with self._changed:
            if not self._late:
                self._late = not self._changed.wait_for(self._lines_written, PATIENCE)

    def _lines_written(self) -> bool:
        return self._unwritten == 0 or self.failure is not None

    def _put(self, job: Job) -> bool:
        """Queue a job, or what there is room for of it; whether its line was."""
        with self._changed:
            if not self._begun and len(self._jobs) >= MOST_WAITING:
                self._late = not self._changed.wait_for(self._lines_written, STARTING_PATIENCE)
                self._begun = True
            if self._idle():
                return False
            crowded = self._begun and len(self._jobs) >= MOST_ROLLOUTS_WAITING
            if job.rollouts is not None and crowded:
                self._lose(ROLLOUTS, job.step)
                if job.measured is None:
                    return False
                job = replace(job, rollouts=None)
            if len(self._jobs) >= MOST_WAITING:
                self._lose(job.file, job.step)
                return False
            self._jobs.append(job)
            self._unwritten += 1
            self._changed.notify_all()
            return True

    def _idle(self) -> bool:
        """Whether nothing is recorded any more, or this is a fork, which has no writer thread."""
        return self._closed or self.failure is not None or os.getpid() != self._pid

    def _lose(self, what: str, step: int) -> None:
        if not self._lost:
            _log.warning(
                "recording does not keep up: step %d is missing from %s, and more may follow; "
                "a faster disk or a lower rollout depth would keep it (%s)",
                *(step, what, self._directory),
            )
        self._lost[what] = self._lost.get(what, 0) + 1

    def _work(self) -> None:
        with self._boundary():
            while self._work_once():
                pass
        if self._scribe is not None:
            self._scribe.end(LEAVING_PATIENCE)

    def _work_once(self) -> bool:
        """Do one job; the frame ends with it, so that no batch outlives its writing."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed or self.failure)
            if not self._jobs:
                return False
            job = self._jobs.popleft()
            self._busy = True
        self._at = job.step
        if self._scribe is not None:
            self._scribe.write(job, self._line_written)
        with self._changed:
            self._busy = False
            self._changed.notify_all()
        return True

    def _line_written(self) -> None:
        with self._changed:
            self._unwritten -= 1
            self._begun |= self._unwritten == 0
            self._late &= self._unwritten > 0
            self._changed.notify_all()

    @contextmanager
    def _boundary(self) -> Iterator[None]:
        """The border between a training that must go on and a recording that may fail."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - no fault of ours may reach the trainer
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, WriterError) else reason_of(error)
        if not self._directory.exists():
            reason = "the run directory was removed"
        with self._changed:
            first = self.failure is None
            self.failure = self.failure or f"recording ended at step {max(self._at, 0)}: {reason}"
            self._jobs.clear()
            self._unwritten = 0
            self._busy = False
            self._changed.notify_all()
        if first:
            _log.warning(
                "%s (%s); training goes on unrecorded: mend it and restart with resume to record",
                *(self.failure, self._directory),
            )

    def flush(self, timeout: float = CLOSING_PATIENCE) -> bool:
        """Wait until all that was handed over is written; False if it was not within `timeout`."""
        if os.getpid() != self._pid:
            return True
        with self._changed:
            done = self._changed.wait_for(lambda: not (self._jobs or self._busy), timeout)
        return done and self.failure is None

    def close(self, *, finished: bool = True) -> None:
        """Write what is left, within `CLOSING_PATIENCE`, and let the directory go.

        Args:
            finished: whether the run came to its end, which the journal then says.
        """
        if self._closed or os.getpid() != self._pid:
            return
        deadline = time.monotonic() + CLOSING_PATIENCE
        self.flush(CLOSING_PATIENCE)
        if self._lost:
            self.event("warning", max(self._last_step, 0), {"not_recorded": self._lost})
        if finished:
            self.event("finished", max(self._last_step, 0))
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(max(deadline - time.monotonic(), LEAVING_PATIENCE))
        if self._thread.is_alive() and self._scribe is not None:
            self._scribe.give_up()  # the thread says so in its warning, and ends
            self._thread.join(LEAVING_PATIENCE)
        if self._opened is not None:
            with self._boundary():
                self._opened.lock.release()  # a scribe that hangs still holds its own
        atexit.unregister(self._close_at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(finished=kind is None)
