"""What is asked of a live run, as it lies in the mailbox: one JSON object, strictly checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from grpodoctor.errors import ConfigError
from grpodoctor.runs.records import Event
from grpodoctor.support.safe_text import printable
from grpodoctor.vocabulary.knobs import Setting, check_change

MOST_BYTES = 64 * 1024
"""Largest request: a note with its evidence takes a few kilobytes."""

MOST_NESTED = 8
"""Levels of a note: what can be read as JSON may be too deep to be written as JSON."""

NOTE_KINDS = frozenset(
    {
        "finding-raised",
        "finding-escalated",
        "finding-resolved",
        "treatment-proposed",
        "treatment-kept",
        "treatment-undone",
        "treatment-forgotten",
    }
)
"""Journal lines that an observer may have written. What the run itself did, it says itself."""

Kind = Literal["apply", "undo", "note"]

_Name = Annotated[StrictStr, Field(max_length=100)]
_Setting = StrictBool | StrictInt | StrictFloat | Annotated[StrictStr, Field(max_length=100)]


class _Letter(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: _Name
    kind: Kind
    treatment_id: _Name = ""
    remedy: _Name = ""
    changes: dict[_Name, _Setting] = Field(default_factory=dict, max_length=32)
    event: dict[StrictStr, Any] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """Something asked of a live run."""

    id: str
    kind: Kind
    """`apply` and `undo` set knobs; `note` has a line written into the journal."""
    treatment_id: str = ""
    remedy: str = ""
    changes: Mapping[str, Setting] = field(default_factory=dict)
    """Canonical knobs and what to set them to."""
    event: Mapping[str, Any] | None = None
    """The line of a note, with `kind` and `step`."""

    def to_bytes(self) -> bytes:
        """The request as JSON."""
        data = {
            "id": self.id,
            "kind": self.kind,
            "treatment_id": self.treatment_id,
            "remedy": self.remedy,
            "changes": dict(self.changes),
            "event": None if self.event is None else dict(self.event),
        }
        return orjson.dumps(data, default=str)

    @classmethod
    def from_bytes(cls, data: bytes) -> Request:
        """Inverse of `to_bytes`, for bytes that anybody may have written.

        Raises:
            ValueError: if it is not a request; the message says why and quotes nothing.
        """
        try:
            letter = _Letter.model_validate(orjson.loads(data))
        except orjson.JSONDecodeError:
            raise ValueError("not JSON") from None
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            place = ".".join(map(str, first["loc"]))[:60] or "the request"
            raise ValueError(f"{place} is not valid: {first['type'].replace('_', ' ')}") from None
        if letter.kind == "note":
            _check_note(letter)
        elif letter.event is not None or not letter.changes:
            raise ValueError(f"a request to {letter.kind} has changes and no event")
        return cls(**dict(letter))

    def body(self) -> dict[str, Any]:
        """What the answer to this request says of it; the run adds `before`, `after`, `reason`."""
        return {
            "request_id": self.id,
            "request": self.kind,
            "treatment_id": self.treatment_id,
            "remedy": self.remedy,
            "changes": dict(self.changes),
        }

    def as_event(self) -> Event:
        """The journal line that a note asks for.

        Raises:
            ValueError: if this is not a note.
        """
        if self.event is None:
            raise ValueError(f"a request to {self.kind} is not a note")
        body = {key: value for key, value in self.event.items() if key not in _HEAD}
        return Event(kind=str(self.event["kind"]), step=int(self.event["step"]), body=body)


_LONGEST_TEXT = 500
_MOST_ITEMS = 20
_HEAD = frozenset({"kind", "step", "time"})


def _check_note(letter: _Letter) -> None:
    event = letter.event or {}
    kind, step = event.get("kind"), event.get("step")
    if letter.changes:
        raise ValueError("a note has no changes")
    if not isinstance(kind, str) or kind not in NOTE_KINDS:
        raise ValueError("a note of a kind that only the run itself may write")
    if isinstance(step, bool) or not isinstance(step, int) or step < -1:
        raise ValueError("a note without a step")
    if _deeper(event, MOST_NESTED):
        raise ValueError("a note that is nested too deeply")


def _deeper(value: object, levels: int) -> bool:
    """Whether `value` is nested more than `levels` deep."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(each, levels - 1) for each in inner)


@dataclass(frozen=True, slots=True)
class Refused:
    """Something in the mailbox, or asked, that is not obeyed."""

    name: str
    """The file, made printable."""
    reason: str
    request: Request | None = None
    """The request, where it could be read."""

    def body(self) -> dict[str, Any]:
        """What the journal says of it."""
        asked = self.request.body() if self.request is not None else {}
        return {**asked, "file": self.name, "reason": self.reason}


def validate(request: Request, live_knobs: Mapping[str, Setting]) -> dict[str, Setting] | Refused:
    """The change that a request asks for, checked against the allow-list and its bounds.

    It is all or nothing: half a remedy is another remedy.

    Args:
        request: to apply or to undo.
        live_knobs: the knobs that this run can change, with their present settings.

    Returns:
        The settings in the knobs' own types, or the refusal.
    """
    checked: dict[str, Setting] = {}
    for name, setting in request.changes.items():
        if name not in live_knobs:
            return Refused("", f"this run has no knob {printable(name)} to change", request)
        try:
            checked[name] = check_change(name, setting)
        except ConfigError as error:
            return Refused("", printable(str(error), 300), request)
    if request.kind == "apply" and all(live_knobs[name] == new for name, new in checked.items()):
        return Refused("", "it is in force already", request)
    return checked


def note_request(event: Event, request_id: str) -> Request:
    """A request to have `event` written into the run's journal.

    Long texts are cut, so that evidence which quotes a model's output cannot make the note too
    large to be taken.
    """
    body = {key: _cut(value) for key, value in event.body.items() if key not in _HEAD}
    return Request(
        id=request_id,
        kind="note",
        treatment_id=str(event.body.get("treatment_id", ""))[:100],
        remedy=str(event.body.get("remedy", ""))[:100],
        event={"kind": event.kind, "step": event.step, **body},
    )


def _cut(value: Any, levels: int = MOST_NESTED - 2) -> Any:
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    if not isinstance(value, Mapping | list | tuple):
        return value
    if not levels:
        return str(value)[:_LONGEST_TEXT]
    if isinstance(value, Mapping):
        some = list(value)[:_MOST_ITEMS]
        return {str(key)[:100]: _cut(value[key], levels - 1) for key in some}
    return [_cut(each, levels - 1) for each in value[:_MOST_ITEMS]]
