"""Requests to a live run: one JSON object per file in the mailbox, strictly validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from grpodoctor.runs.records import Event, EventKind
from grpodoctor.support.safe_text import printable
from grpodoctor.vocabulary.knobs import Setting, check_change

MOST_BYTES = 64 * 1024
"""Maximum size of a request; a note with its evidence takes a few kilobytes."""

MOST_NESTED = 8
"""Maximum nesting of a note: JSON that can be parsed may be too deep to serialize."""

MOST_REFUSED = 3
"""Refusals of a step that get a journal line each, so that a flood does not fill the journal."""

NOTE_KINDS = frozenset(
    {
        "finding-raised",
        "finding-escalated",
        "finding-resolved",
        "treatment-proposed",
        "treatment-scheduled",
        "treatment-kept",
        "treatment-undone",
        "treatment-forgotten",
        "treatment-stopped",
    }
)
"""Journal lines that an observer may request. The run itself writes what it did."""

Kind = Literal["apply", "undo", "note"]

_Name = Annotated[StrictStr, Field(max_length=100)]
_Setting = StrictBool | StrictInt | StrictFloat | Annotated[StrictStr, Field(max_length=100)]


class _RequestData(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: _Name
    kind: Kind
    treatment_id: _Name = ""
    remedy: _Name = ""
    changes: dict[_Name, _Setting] = Field(default_factory=dict, max_length=32)
    event: dict[StrictStr, Any] | None = None
    from_step: StrictInt = Field(-1, ge=-1, le=2**53)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a live run."""

    id: str
    kind: Kind
    """`apply` and `undo` set knobs; `note` adds a line to the journal."""
    treatment_id: str = ""
    remedy: str = ""
    changes: Mapping[str, Setting] = field(default_factory=dict)
    """Canonical knobs and their new settings."""
    event: Mapping[str, Any] | None = None
    """The journal line of a note, with `kind` and `step`."""
    from_step: int = -1
    """The step at which it is to be applied; -1 for at once. Until then it stays in the mailbox."""

    @property
    def applied_kind(self) -> EventKind:
        """The kind of the journal line that says that it was applied."""
        return "treatment-applied" if self.from_step < 0 else "treatment-switched"

    def to_bytes(self) -> bytes:
        """The request as JSON."""
        data = {
            "id": self.id,
            "kind": self.kind,
            "treatment_id": self.treatment_id,
            "remedy": self.remedy,
            "changes": dict(self.changes),
            "event": None if self.event is None else dict(self.event),
            "from_step": self.from_step,
        }
        return orjson.dumps(data, default=str)

    @classmethod
    def from_bytes(cls, data: bytes) -> Request:
        """Inverse of `to_bytes`, for untrusted bytes.

        Raises:
            ValueError: if it is not a valid request; the message does not quote the content.
        """
        try:
            parsed = _RequestData.model_validate(orjson.loads(data))
        except orjson.JSONDecodeError:
            raise ValueError("not JSON") from None
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            place = ".".join(map(str, first["loc"]))[:60] or "the request"
            raise ValueError(f"{place} is not valid: {first['type'].replace('_', ' ')}") from None
        if parsed.kind == "note":
            _check_note(parsed)
            if parsed.from_step >= 0:
                raise ValueError("a note must not have a step to wait for")
        elif parsed.event is not None or not parsed.changes:
            raise ValueError(f"a request of kind {parsed.kind} must have changes and no event")
        return cls(**dict(parsed))

    def body(self) -> dict[str, Any]:
        """Fields of the journal line that answers it; the run adds `before`, `after`, `reason`."""
        return {
            "request_id": self.id,
            "request": self.kind,
            "treatment_id": self.treatment_id,
            "remedy": self.remedy,
            "changes": dict(self.changes),
        }

    def as_event(self) -> Event:
        """The journal line of a note.

        Raises:
            ValueError: if this is not a note.
        """
        if self.event is None:
            raise ValueError(f"a request of kind {self.kind} is not a note")
        body = {key: _cut(value) for key, value in self.event.items() if key not in _HEAD}
        return Event(kind=str(self.event["kind"]), step=int(self.event["step"]), body=body)


_LONGEST_TEXT = 500
_MOST_ITEMS = 20
_HEAD = frozenset({"kind", "step", "time"})


def _check_note(data: _RequestData) -> None:
    event = data.event or {}
    kind, step = event.get("kind"), event.get("step")
    if data.changes:
        raise ValueError("a note must not have changes")
    if not isinstance(kind, str) or kind not in NOTE_KINDS:
        raise ValueError("only the run itself may write events of this kind")
    if isinstance(step, bool) or not isinstance(step, int) or step < -1:
        raise ValueError("the note has no valid step")
    if _is_deeper(event, MOST_NESTED):
        raise ValueError("the note is nested too deeply")


def _is_deeper(value: object, levels: int) -> bool:
    """Whether `value` has more than `levels` levels."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in inner)


@dataclass(frozen=True, slots=True)
class Refused:
    """A file or a request in the mailbox that is refused."""

    name: str
    """Name of the file, made printable."""
    reason: str
    request: Request | None = None
    """The request, if it could be parsed."""

    def body(self) -> dict[str, Any]:
        """The fields of its journal line."""
        request = self.request.body() if self.request is not None else {}
        return {**request, "file": self.name, "reason": self.reason}


def shortened(refusals: Sequence[Refused]) -> list[Refused]:
    """The refusals of a step for the journal: one entry for all after the first few."""
    if len(refusals) <= MOST_REFUSED + 1:
        return list(refusals)
    first, rest = refusals[:MOST_REFUSED], refusals[MOST_REFUSED:]
    return [*first, Refused(f"{len(rest)} more requests", f"the first: {rest[0].reason}")]


def validate(
    request: Request, live_knobs: Mapping[str, Setting], *, is_final: bool = True
) -> dict[str, Setting] | Refused:
    """Check the changes of a request against the allow-list and its bounds.

    All changes must be valid, since half a remedy is a different remedy.

    Args:
        request: a request of kind `apply` or `undo`.
        live_knobs: the knobs that this run can change, with their current settings.
        is_final: whether it is applied now; a change in force may be taken back until later.

    Returns:
        The settings in the knobs' own types, or the refusal.
    """
    checked: dict[str, Setting] = {}
    for name, setting in request.changes.items():
        if name not in live_knobs:
            refusal = (
                f"this run cannot change the knob {printable(name)}; restart it with the setting"
            )
            return Refused("", refusal, request)
        try:
            checked[name] = check_change(name, setting)
        except ConfigError as error:
            return Refused("", printable(str(error), 300), request)
    is_in_force = all(live_knobs[name] == new for name, new in checked.items())
    if is_final and request.kind == "apply" and is_in_force:
        return Refused("", "the change is already in force", request)
    return checked


def note_request(event: Event, request_id: str) -> Request:
    """A request to write `event` to the run's journal.

    Long texts are cut, so that evidence with model output does not make the note too large.
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
        keys = list(value)[:_MOST_ITEMS]
        return {str(key)[:100]: _cut(value[key], levels - 1) for key in keys}
    return [_cut(item, levels - 1) for item in value[:_MOST_ITEMS]]
