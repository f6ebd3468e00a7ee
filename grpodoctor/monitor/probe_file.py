"""The content of a file `RUN/probe/*.json`: the result of a probe that is attached to a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

from grpodoctor.vocabulary.values import Reading, reading_from_json, reading_to_json

_Text = Annotated[str, Field(max_length=2000)]


def _reading(value: object) -> Reading:
    return value if isinstance(value, Reading) else reading_from_json(value)


class AttachedProbe(BaseModel):
    """The result of a probe for one pair of engines."""

    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True)

    schema_version: int = 1
    """Version of the file's format."""
    created: Annotated[str, Field(max_length=40)] = ""
    """Time of the probe, ISO 8601, UTC; the latest probe is used."""
    sampler: _Text = ""
    """Label of the engine that samples."""
    learner: _Text = ""
    """Label of the training-side engine."""
    verdict: _Text = ""
    """Whether the engines agree, and if not, why."""
    causes: tuple[_Text, ...] = ()
    """Ids of the causes, the one that explains most of the gap first."""
    readings: dict[
        str, Annotated[Reading, PlainValidator(_reading), PlainSerializer(reading_to_json)]
    ] = Field(default_factory=dict)
    """Readings by canonical metric name."""

    @property
    def note(self) -> str:
        """A summary for the report of the run."""
        return (
            f"attached probe of {self.created[:10] or 'unknown date'}, sampler {self.sampler}, "
            f"learner {self.learner}: {self.verdict}"
        )
