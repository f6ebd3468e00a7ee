"""Waiting times and limits of the doctor."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field


class DoctorSettings(BaseModel):
    """Waiting times of the doctor, in steps of the run, and further remedies that are safe."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    block_steps: int = Field(2, ge=1, le=12)
    """Steps of a block with the treatment on or off. Longer blocks show slow effects and take
    longer; a stage of ten blocks must fit into the window of a metric."""
    answer_steps: int = Field(100, ge=1, le=10_000)
    """Steps within which the run must answer. An observer reads several steps at a time, many if
    they take milliseconds, and the run takes requests between two steps."""
    cool_down_steps: int = Field(12, ge=0, le=10_000)
    """Steps between the end of a treatment and the next one, so that their effects do not mix."""
    most_treatments: int = Field(4, ge=1, le=100)
    """Treatments that a run may get. Each has a chance of 5 % to be kept without an effect; with
    four, that of a run stays below one in five."""
    safe_remedies: frozenset[str] = frozenset()
    """Ids of unsafe remedies that the user declares to be safe."""

    def with_safe(self, remedies: Iterable[str]) -> DoctorSettings:
        """The same settings with further safe remedies."""
        return self.model_copy(update={"safe_remedies": self.safe_remedies.union(remedies)})
