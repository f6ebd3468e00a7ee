"""The parts of a run: manifest, steps and events.

Files of a run directory:

    RUN/run.json                                    manifest, replaced atomically
    RUN/steps.jsonl                                 one line per step, append-only
    RUN/rollouts/step-000123.rank-0.parquet         responses of a step, written atomically
    RUN/events.jsonl                                one line per event, append-only
    RUN/mailbox/                                    requests to the live run, one file each
    RUN/writer.lock                                 held by the trainer while it runs
    RUN/scribe.lock                                 held by its writer process
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import orjson

from grpodoctor.support.safe_text import clean_text
from grpodoctor.support.validation_reasons import first_reason
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Reading, reading_from_json, reading_to_json

SCHEMA_VERSION = 1
MANIFEST = "run.json"
STEPS = "steps.jsonl"
EVENTS = "events.jsonl"
ROLLOUTS = "rollouts"
MAILBOX = "mailbox"
WRITER_LOCK = "writer.lock"
WRITER_PROCESS_LOCK = "scribe.lock"
_JSON_INTEGER_BITS = 64
_JSON_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


@dataclass(frozen=True)
class Manifest:
    """The constant facts of a run, and its first knobs."""

    schema_version: int = SCHEMA_VERSION
    """Version of the format of the run directory."""
    run_id: str = ""
    """Unique id of the run; a resumed run keeps it."""
    framework: str = "grpodoctor"
    """Framework that wrote the run."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the packages that affect the numbers."""
    model: str = ""
    """Model name or path, as the user gave it."""
    knobs: dict[str, bool | int | float | str] = field(default_factory=dict)
    """Canonical knobs at the start; later changes are in the steps."""
    config: dict[str, Any] = field(default_factory=dict)
    """The framework's complete configuration."""
    seed: int | None = None
    """Seed of the run."""
    template_hash: str = ""
    """Hash of the prompt template."""
    sampler_hash: str = ""
    """Hash of the sampling settings."""
    started: float = 0.0
    """Unix time at which recording began."""

    def to_json(self) -> bytes:
        """The text of `run.json`."""
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        return _to_json(content, orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Parse the text of `run.json`.

        Raises:
            ValueError: if it is not a manifest; the message says why.
        """
        from pydantic import TypeAdapter, ValidationError  # a framework's log needs no pydantic

        try:
            return TypeAdapter(cls).validate_python(_parse_object(text))
        except ValidationError as error:
            raise ValueError(first_reason(error)) from None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One training step."""

    step: int
    values: Mapping[str, Reading]
    """Readings by canonical metric name."""
    knobs: Mapping[str, Setting] = field(default_factory=dict)
    """Knobs that changed before this step."""
    time: float = 0.0
    """Unix time at the end of the step."""
    logged: Mapping[str, float] = field(default_factory=dict)
    """Numbers of a framework's log whose keys give no metric; read on request, never written."""

    def to_line(self) -> bytes:
        """Make one JSON line, including the newline."""
        data: dict[str, object] = {
            "step": self.step,
            "time": self.time,
            "values": {name: reading_to_json(value) for name, value in self.values.items()},
        }
        if self.knobs:
            data["knobs"] = dict(self.knobs)
        return _to_json(data)

    @classmethod
    def from_line(cls, line: bytes) -> StepRecord:
        """Parse a line.

        Raises:
            ValueError: if the line is not a step; the message says why.
        """
        data = _parse_object(line)
        step = data.get("step")
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise ValueError("no step number")
        values = _object(data, "values")
        knobs = _object(data, "knobs") if "knobs" in data else {}
        if not all(isinstance(setting, bool | int | float | str) for setting in knobs.values()):
            raise ValueError("a knob without a valid value")
        return cls(
            step=step,
            values={current_name(name): reading_from_json(v) for name, v in values.items()},
            knobs=knobs,
            time=_number(data.get("time")),
        )


EventKind = Literal[
    "started",
    "resumed",
    "finished",
    "warning",
    "checkpoint",
    "finding-raised",
    "finding-escalated",
    "finding-resolved",
    "treatment-proposed",
    "treatment-scheduled",
    "treatment-applied",
    "treatment-switched",
    "treatment-refused",
    "treatment-kept",
    "treatment-undone",
    "treatment-forgotten",
    "treatment-stopped",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the journal, `events.jsonl`."""

    kind: str
    """One of `EventKind`; newer versions may have further kinds."""
    step: int
    body: Mapping[str, Any] = field(default_factory=dict)
    time: float = 0.0

    def to_line(self) -> bytes:
        """Make one JSON line, including the newline."""
        head = {"kind": self.kind, "step": self.step, "time": self.time}
        return _to_json({**head, **self.body, **head})

    @classmethod
    def from_line(cls, line: bytes) -> Event:
        """Parse a line.

        Raises:
            ValueError: if the line is not an event.
        """
        data = _parse_object(line)
        kind, step = data.pop("kind", None), data.pop("step", None)
        if not isinstance(kind, str) or isinstance(step, bool) or not isinstance(step, int):
            raise ValueError("no kind or no step")  # noqa: TRY004 - as above
        return cls(kind=kind, step=step, time=_number(data.pop("time", None)), body=data)


_FORMER_PREFIX, _PREFIX = "optimiser/", "optimizer/"


def current_name(metric: str) -> str:
    """The current name of a metric; runs recorded by earlier versions use another spelling."""
    if metric.startswith(_FORMER_PREFIX):
        return _PREFIX + metric.removeprefix(_FORMER_PREFIX)
    return metric


def _parse_object(line: bytes) -> dict[str, Any]:
    data = orjson.loads(line)
    if not isinstance(data, dict):
        raise ValueError("not an object")  # noqa: TRY004 - callers expect ValueError
    return data


def _object(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise ValueError(f"no {key}")  # noqa: TRY004 - as above
    return value


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _to_json(data: Mapping[str, object], layout: int = 0) -> bytes:
    option = layout | _JSON_OPTIONS
    try:
        return orjson.dumps(data, option=option, default=str)
    except TypeError:
        # Text of a model may contain lone surrogates, and a setting may exceed 64 bits.
        return orjson.dumps(_plain(data), option=option)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {clean_text(str(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and value.bit_length() < _JSON_INTEGER_BITS:
        return value
    return clean_text(str(value))
