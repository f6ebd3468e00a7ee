"""Steps of several ranks, joined on rank 0.

A thread measures this rank's part and exchanges it, because the training must not wait for either.
Nearly all of its time is in numpy, which leaves the interpreter to the training meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from grpodoctor.hooks.ranks.exchange import RankExchange
from grpodoctor.hooks.ranks.merging import RankPart, merge_parts, part_of
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch, held_bytes
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Reading

MAX_WAITING = 4
"""Steps that wait for the parts of other ranks. Ranks that train together are at most one step
apart, so a part that is further behind does not come."""
MAX_QUEUE = 4096
"""Steps that may wait to be measured; further ones are dropped."""
MAX_QUEUED_BYTES = 256 * 2**20
"""Bytes of the batches that wait to be measured, from which further batches are dropped."""
_MOST_LATE = 64
"""Late parts that rank 0 looks for. A rank that is later than that is gone."""
_POLL_SECONDS = 0.05
"""Interval at which rank 0 looks for the parts of other ranks."""

_log = logging.getLogger("grpodoctor")


@dataclass(frozen=True)
class _Job:
    """A step that is not measured yet."""

    number: int
    """The count of this step since the start, the same on all ranks."""
    step: int
    measured: StepBatch | Mapping[str, Reading]
    knobs: Mapping[str, Setting]
    size: int
    """Bytes that the batch keeps in memory."""


@dataclass
class _Waiting:
    """A step with missing parts."""

    number: int
    step: int
    parts: dict[int, RankPart]
    knobs: Mapping[str, Setting]
    rollouts: RolloutBatch | None


@dataclass(frozen=True)
class JoinedStep:
    """A step with the readings of all ranks whose part arrived."""

    step: int
    readings: dict[str, Reading]
    knobs: Mapping[str, Setting]
    rollouts: RolloutBatch | None
    """The responses of this rank."""
    missing: tuple[int, ...] = ()
    """Ranks whose part did not arrive."""


class RankSteps:
    """Posts this rank's part of each step; on rank 0, joins the parts and hands the steps on.

    Args:
        exchange: the connection to the other ranks.
        record: takes the joined steps in order, in another thread; called on rank 0 only.
        run: calls an action and keeps its exceptions away from the thread, which goes on.
    """

    def __init__(
        self,
        exchange: RankExchange,
        record: Callable[[JoinedStep], None],
        run: Callable[[Callable[[], None]], object],
    ) -> None:
        self._exchange, self._record, self._run = exchange, record, run
        self._count = 0
        self._jobs: deque[_Job] = deque()
        self._queued_bytes = 0
        self._waiting: deque[_Waiting] = deque()
        self._late: deque[str] = deque(maxlen=_MOST_LATE)
        """Names of parts that had not arrived when their step was recorded."""
        self._deadline: float | None = None
        """When steps are recorded without their missing parts; None while the training runs."""
        self._busy = self._closed = self._dropped = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="grpodoctor-ranks", daemon=True)
        self._thread.start()

    def end_step(
        self,
        step: int,
        measured: StepBatch | Mapping[str, Reading],
        knobs: Mapping[str, Setting],
    ) -> None:
        """Take this rank's part of a step, whose arrays do not change any more."""
        with self._changed:
            self._count += 1
            size = held_bytes(measured)
            if self._has_room(size):
                self._jobs.append(_Job(self._count, step, measured, knobs, size))
                self._queued_bytes += size
                self._changed.notify_all()
            elif not self._dropped:
                self._dropped = True
                _log.warning("measuring is too slow: step %d is dropped, more may follow", step)

    def _has_room(self, size: int) -> bool:
        full = size > 0 and self._queued_bytes >= MAX_QUEUED_BYTES
        return len(self._jobs) < MAX_QUEUE and not full

    def finish(self, seconds: float, *, close: bool = False) -> None:
        """Wait at most so long until all steps are posted or recorded.

        Args:
            seconds: the longest wait; after it, steps are recorded without the missing parts.
            close: whether no step follows.
        """
        with self._changed:
            self._deadline, self._closed = time.monotonic() + seconds, self._closed or close
            self._changed.notify_all()
            self._changed.wait_for(self._is_idle, seconds + 1)
            self._deadline = None
        if close:
            self._thread.join(seconds)

    def _is_idle(self) -> bool:
        return not (self._jobs or self._waiting or self._busy)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: self._jobs or self._closed, _POLL_SECONDS if self._waiting else None
                )
                if self._closed and self._is_idle():
                    return
                job = self._jobs.popleft() if self._jobs else None
                self._queued_bytes -= job.size if job else 0
                self._busy = True
            if job is not None:
                self._run(partial(self._measure, job))
            self._run(self._record_complete)
            if job is None and self._waiting:
                time.sleep(_POLL_SECONDS)

    def _measure(self, job: _Job) -> None:
        rank = self._exchange.info.rank
        part = part_of(job.measured, rank)
        if rank:
            self._exchange.post(_name(job.number, rank), part.to_bytes())
            return
        rollouts = job.measured.rollouts if isinstance(job.measured, StepBatch) else None
        self._waiting.append(_Waiting(job.number, job.step, {0: part}, job.knobs, rollouts))

    def _record_complete(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            self._collect(first)
            is_complete = len(first.parts) == self._exchange.info.world
            is_late = self._deadline is not None and time.monotonic() >= self._deadline
            if not (is_complete or is_late or len(self._waiting) > MAX_WAITING):
                return
            self._waiting.popleft()
            joined = _joined(first, self._exchange.info.world)
            self._drop_late_parts()
            self._late += [_name(first.number, rank) for rank in joined.missing]
            self._record(joined)

    def _drop_late_parts(self) -> None:
        """Remove parts that came too late, which would fill the store of a long training."""
        for name in list(self._late):
            if self._exchange.take(name) is not None:
                self._late.remove(name)

    def _collect(self, waiting: _Waiting) -> None:
        for rank in range(1, self._exchange.info.world):
            if rank not in waiting.parts:
                data = self._exchange.take(_name(waiting.number, rank))
                if data is not None:
                    waiting.parts[rank] = RankPart.from_bytes(data)


def _joined(waiting: _Waiting, world: int) -> JoinedStep:
    ranks = range(world)
    return JoinedStep(
        waiting.step,
        merge_parts([waiting.parts[rank] for rank in ranks if rank in waiting.parts]),
        waiting.knobs,
        waiting.rollouts,
        tuple(rank for rank in ranks if rank not in waiting.parts),
    )


def _name(number: int, rank: int) -> str:
    return f"step/{number}/{rank}"
