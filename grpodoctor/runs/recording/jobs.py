"""What a recorder hands over to be written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch, step_readings
from grpodoctor.runs.records import EVENTS, STEPS, StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Mean, Reading


@dataclass(frozen=True, slots=True)
class StepJob:
    """A step: its line first, then its rollouts."""

    file: ClassVar[str] = STEPS
    step: int
    measured: StepBatch | Mapping[str, Reading] | None
    """What its line is made of; None on ranks that write none."""
    rollouts: RolloutBatch | None
    """What its Parquet file is made of; None if there is to be none."""
    knobs: Mapping[str, Setting]
    time: float
    cost: float | None
    """Seconds that recording has cost the training since the step before."""

    def to_line(self) -> bytes | None:
        """Measure; None if there is no line to write."""
        if self.measured is None:
            return None
        given = self.measured
        values = step_readings(given) if isinstance(given, StepBatch) else dict(given)
        if self.cost is not None:
            values.setdefault("time/record", Mean.of([self.cost]))
        return StepRecord(self.step, values, self.knobs, self.time).to_line()


@dataclass(frozen=True, slots=True)
class EventJob:
    """An event's line, which is ready."""

    file: ClassVar[str] = EVENTS
    step: int
    line: bytes
    rollouts: ClassVar[None] = None

    def to_line(self) -> bytes:
        """The line."""
        return self.line


Job = StepJob | EventJob


@dataclass(frozen=True, slots=True)
class LineWritten:
    """The job's line is on disk; its rollouts follow."""


@dataclass(frozen=True, slots=True)
class JobDone:
    """All of the job is on disk."""


@dataclass(frozen=True, slots=True)
class JobFailed:
    """Nothing more will be written."""

    why: str


Reply = LineWritten | JobDone | JobFailed


def reason_of(error: Exception) -> str:
    """What went wrong, in one line."""
    reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    return " ".join(str(reason).split())
