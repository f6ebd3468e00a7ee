"""Steps of several ranks, joined on rank 0."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from grpodoctor.hooks.rank_exchange import RankExchange
from grpodoctor.hooks.rank_merge import RankPart, merge_parts, part_of
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Reading

MAX_WAITING = 4
"""Steps that wait for the parts of other ranks. Ranks that train together are at most one step
apart, so a part that is further behind does not come."""
_POLL_SECONDS = 0.02


@dataclass
class _Waiting:
    """A step of which parts are missing."""

    number: int
    """The count of this step since the start, the same on all ranks."""
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


@dataclass
class RankSteps:
    """Posts this rank's part of each step; on rank 0, joins the parts and hands the steps on.

    A step is handed on at the end of the next one, because no rank waits for another.

    Args:
        exchange: the connection to the other ranks.
        record: takes the joined steps in order; called on rank 0 only.
    """

    exchange: RankExchange
    record: Callable[[JoinedStep], None]
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _count: int = 0

    def end_step(
        self,
        step: int,
        measured: StepBatch | Mapping[str, Reading],
        knobs: Mapping[str, Setting],
    ) -> None:
        """Measure and post this rank's part; on rank 0, record the steps that are complete."""
        rank = self.exchange.info.rank
        part = part_of(measured, rank)
        self._count += 1
        if rank:
            self.exchange.post(_name(self._count, rank), part.to_bytes())
            return
        rollouts = measured.rollouts if isinstance(measured, StepBatch) else None
        self._waiting.append(_Waiting(self._count, step, {0: part}, knobs, rollouts))
        self._record_complete()

    def finish(self, seconds: float) -> None:
        """Record the remaining steps, and wait at most so long for missing parts."""
        deadline = time.monotonic() + seconds
        while self._waiting:
            self._record_complete()
            if self._waiting and time.monotonic() >= deadline:
                self._record_first()
            elif self._waiting:
                time.sleep(_POLL_SECONDS)

    def _record_complete(self) -> None:
        while self._waiting:
            self._collect(self._waiting[0])
            is_complete = len(self._waiting[0].parts) == self.exchange.info.world
            if not is_complete and len(self._waiting) <= MAX_WAITING:
                return
            self._record_first()

    def _collect(self, waiting: _Waiting) -> None:
        for rank in range(1, self.exchange.info.world):
            if rank not in waiting.parts:
                data = self.exchange.take(_name(waiting.number, rank))
                if data is not None:
                    waiting.parts[rank] = RankPart.from_bytes(data)

    def _record_first(self) -> None:
        waiting = self._waiting.popleft()
        ranks = range(self.exchange.info.world)
        self.record(
            JoinedStep(
                waiting.step,
                merge_parts([waiting.parts[rank] for rank in ranks if rank in waiting.parts]),
                waiting.knobs,
                waiting.rollouts,
                tuple(rank for rank in ranks if rank not in waiting.parts),
            )
        )


def _name(number: int, rank: int) -> str:
    return f"step/{number}/{rank}"
