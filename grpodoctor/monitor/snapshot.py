"""What a live view shows at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from grpodoctor.monitor.report import (
    ReportedFinding,
    RunFacts,
    SkippedRule,
    TreatmentEntry,
)
from grpodoctor.monitor.vitals import Vital


@dataclass(frozen=True, slots=True)
class TreatmentState:
    """The treatment in progress."""

    remedy: str
    state: str
    """`proposed`, `applied` or `undoing`."""
    waited: int
    """Steps since it was applied."""
    patience: int
    """Steps until it is judged."""
    metric: str
    """The metric that must move."""
    before: float | None
    now: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of a run under observation; nothing in it changes any more."""

    facts: RunFacts
    waiting: bool
    """Nothing of the run is there yet."""
    finished: bool
    apply: str
    """Which remedies may be applied: `none`, `safe` or `unsafe`."""
    steps_per_minute: float | None = None
    age: float | None = None
    """Seconds since the latest step; None if unknown."""
    vitals: tuple[Vital, ...] = ()
    findings: tuple[ReportedFinding, ...] = ()
    treatment: TreatmentState | None = None
    journal: tuple[TreatmentEntry, ...] = ()
    """Journal lines about treatments, oldest first."""
    skipped: tuple[SkippedRule, ...] = ()
    quiet: int = 0
    not_applicable: int = 0
    damage_total: int = 0
    trouble: str = ""
    """Why the latest request to the run could not be sent."""
