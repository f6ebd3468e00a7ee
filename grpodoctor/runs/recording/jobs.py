"""The messages between a recorder and its writer process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch, held_bytes, step_readings
from grpodoctor.runs.records import EVENTS, STEPS, StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Mean, Reading


@dataclass(frozen=True, slots=True)
class StepJob:
    """A step: its line is written first, then its rollouts."""

    file: ClassVar[str] = STEPS
    step: int
    measured: StepBatch | Mapping[str, Reading] | None
    """The measurements of its line; None on ranks that write no lines."""
    rollouts: RolloutBatch | None
    """The responses of its Parquet file; None for no file."""
    knobs: Mapping[str, Setting]
    time: float
    cost: float | None
    """Seconds by which recording delayed the training since the previous step."""

    def to_line(self) -> bytes | None:
        """Measure the step and make its line; None if there is none."""
        if self.measured is None:
            return None
        measured = self.measured
        values = step_readings(measured) if isinstance(measured, StepBatch) else dict(measured)
        if self.cost is not None:
            values.setdefault("time/record", Mean.of([self.cost]))
        return StepRecord(self.step, values, self.knobs, self.time).to_line()


@dataclass(frozen=True, slots=True)
class EventJob:
    """An event with its finished line."""

    file: ClassVar[str] = EVENTS
    step: int
    line: bytes
    rollouts: ClassVar[None] = None

    def to_line(self) -> bytes:
        """Return the line."""
        return self.line


Job = StepJob | EventJob


def batch_bytes(job: Job) -> int:
    """Bytes of the arrays and texts that a waiting job keeps in memory; 0 for a finished line."""
    return held_bytes(job.measured, job.rollouts) if isinstance(job, StepJob) else 0


@dataclass(frozen=True, slots=True)
class Ready:
    """The writer process has started and takes jobs."""


@dataclass(frozen=True, slots=True)
class LineWritten:
    """The line of the job is on disk; its rollouts follow."""


@dataclass(frozen=True, slots=True)
class JobDone:
    """The whole job is on disk."""


@dataclass(frozen=True, slots=True)
class JobFailed:
    """Writing failed; the writer process stops."""

    why: str


Reply = Ready | LineWritten | JobDone | JobFailed


def reason_of(error: Exception) -> str:
    """Describe an error in one line."""
    reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    return " ".join(str(reason).split())
