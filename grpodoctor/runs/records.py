"""What a run is made of: its manifest, its steps and its events.

The files they stand in:

    RUN/run.json                                    the manifest, replaced atomically
    RUN/steps.jsonl                                 one line a step, append-only
    RUN/rollouts/step-000123.rank-0.parquet         written aside, renamed into place
    RUN/events.jsonl                                one line an event; the recording process writes it
    RUN/mailbox/                                    requests to the live run, one file each
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Reading, reading_from_json, reading_to_json

SCHEMA_VERSION = 1
MANIFEST = "run.json"
STEPS = "steps.jsonl"
EVENTS = "events.jsonl"
ROLLOUTS = "rollouts"
MAILBOX = "mailbox"


class Manifest(BaseModel):
    """What does not change during a run, and the knobs it began with."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = SCHEMA_VERSION
    """Version of the directory's format."""
    run_id: str = ""
    """Changes whenever a recorder opens the directory anew, so that a follower notices a restart."""
    framework: str = "grpodoctor"
    """Which trainer wrote it."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Package versions that matter to the numbers."""
    model: str = ""
    """Model name or path as the user gave it."""
    knobs: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Canonical knobs at the start; changes in flight stand in the steps."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The framework's own configuration, whole."""
    seed: int | None = None
    """Seed of the run."""
    template_hash: str = ""
    """Hash of the prompt template."""
    sampler_hash: str = ""
    """Hash of the sampling settings."""
    started: float = 0.0
    """Unix time at which recording began."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimiser-visible training step."""

    step: int
    values: Mapping[str, Reading]
    """Readings by canonical metric name."""
    knobs: Mapping[str, Setting] = field(default_factory=dict)
    """Knobs that changed before this step."""
    time: float = 0.0
    """Unix time at the end of the step."""

    def to_line(self) -> bytes:
        """One JSON line, newline included."""
        data = {
            "step": self.step,
            "time": self.time,
            "values": {name: reading_to_json(value) for name, value in self.values.items()},
        }
        if self.knobs:
            data["knobs"] = dict(self.knobs)
        return orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def from_line(cls, line: bytes) -> StepRecord:
        """Inverse of `to_line`.

        Raises:
            ValueError: if the line is not a step; the message says why.
        """
        data = _parse_object(line)
        step = data.get("step")
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise ValueError("no step number")
        values = data.get("values")
        knobs = data.get("knobs", {})
        if not isinstance(values, dict) or not isinstance(knobs, dict):
            raise ValueError("no values")
        return cls(
            step=step,
            values={name: reading_from_json(value) for name, value in values.items()},
            knobs=knobs,
            time=_number(data.get("time")),
        )


EventKind = Literal[
    "started",
    "resumed",
    "finished",
    "warning",
    "finding-raised",
    "finding-resolved",
    "treatment-proposed",
    "treatment-applied",
    "treatment-refused",
    "treatment-kept",
    "treatment-undone",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the journal."""

    kind: str
    """One of `EventKind`; a newer writer may know more."""
    step: int
    body: Mapping[str, Any] = field(default_factory=dict)
    time: float = 0.0

    def to_line(self) -> bytes:
        """One JSON line, newline included."""
        data = {"kind": self.kind, "step": self.step, "time": self.time, **self.body}
        return orjson.dumps(
            data, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY, default=str
        )

    @classmethod
    def from_line(cls, line: bytes) -> Event:
        """Inverse of `to_line`.

        Raises:
            ValueError: if the line is not an event.
        """
        data = _parse_object(line)
        kind, step = data.pop("kind", None), data.pop("step", None)
        if not isinstance(kind, str) or not isinstance(step, int):
            raise ValueError("no kind or no step")
        return cls(kind=kind, step=step, time=_number(data.pop("time", None)), body=data)


def _parse_object(line: bytes) -> dict[str, Any]:
    data = orjson.loads(line)
    if not isinstance(data, dict):
        raise ValueError("not an object")  # noqa: TRY004 - callers ask for one kind of error
    return data


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
