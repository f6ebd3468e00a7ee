"""The result of polling a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from grpodoctor.runs.records import Event, Manifest, StepRecord
from grpodoctor.support.files.growing_files import Damage

MAX_DAMAGE = 1000
"""Damaged lines that are kept; all of them are counted."""


@dataclass(slots=True)
class Poll:
    """What a run has written since the previous poll."""

    manifest: Manifest | None = None
    """Set when it is new or has changed."""
    restarted: bool = False
    """Another run replaced the previous one: discard all earlier polls."""
    steps: list[StepRecord] = field(default_factory=list)
    """In file order. A step at or before its predecessor means that the run went back."""
    events: list[Event] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Decisions made while reading a framework's log, one line each."""
    more: bool = False
    """More data is available; poll again without waiting."""
    pending: bool = False
    """The latest data may be incomplete; a poll in a moment returns it in any case."""


@dataclass
class DamageSummary:
    """Counts all damage and keeps the first entries."""

    count: int = 0
    first: list[Damage] = field(default_factory=list)

    def note(self, damage: list[Damage]) -> None:
        """Add damage."""
        self.count += len(damage)
        self.first += damage[: max(0, MAX_DAMAGE - len(self.first))]
