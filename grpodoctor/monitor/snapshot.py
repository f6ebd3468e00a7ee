"""The state that a live view shows at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from grpodoctor.monitor.diagnosis.verdict import Verdict
from grpodoctor.monitor.report import Report, RunFacts, TreatmentEntry
from grpodoctor.monitor.vitals import Vital
from grpodoctor.rules.base import Finding
from grpodoctor.rules.diagnosis import Skipped
from grpodoctor.treatment.treatments import Treatment


@dataclass(frozen=True, slots=True)
class TreatmentState:
    """The treatment in progress."""

    remedy: str
    state: str
    """`proposed`, `applied`, `keeping` or `undoing`."""
    waited: int
    """Steps since it was applied."""
    patience: int
    """Steps from applying it to the next assessment."""
    metric: str
    """The target metric."""
    untreated: float | None
    """Its median with the treatment off."""
    treated: float | None
    """Its median with the treatment on."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An immutable copy of the state of a run that is being watched."""

    report: Report
    """Everything that is known; the other fields are what a small screen shows."""
    facts: RunFacts
    waiting: bool
    """Whether the run has not written anything yet."""
    finished: bool
    apply: str
    """Which remedies may be applied: `none`, `ask`, `safe` or `unsafe`."""
    verdict: Verdict | None = None
    """The verdict so far; None before the first step."""
    steps_per_minute: float | None = None
    age: float | None = None
    """Seconds since the latest step; None if unknown."""
    vitals: tuple[Vital, ...] = ()
    findings: tuple[Finding, ...] = ()
    treatment: TreatmentState | None = None
    proposal: Treatment | None = None
    """A treatment that waits for a person's approval."""
    journal: tuple[TreatmentEntry, ...] = ()
    """Lines of the treatment journal, oldest first."""
    skipped: tuple[Skipped, ...] = ()
    """The rules that can apply to the run but lack data."""
    quiet: int = 0
    """Number of rules that ran and found nothing."""
    not_applicable: int = 0
    """Number of rules that cannot apply to the run."""
    damage_total: int = 0
    send_error: str = ""
    """Why the latest request to the run could not be sent."""
