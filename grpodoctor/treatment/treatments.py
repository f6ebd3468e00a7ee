"""A treatment, and its lines in the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from grpodoctor.rules.base import Finding
from grpodoctor.runs.records import Event
from grpodoctor.treatment.assessment import Comparison
from grpodoctor.treatment.switchback import Stage
from grpodoctor.vocabulary.knobs import Setting, is_knob

State = Literal[
    "proposed", "applied", "keeping", "undoing", "kept", "undone", "refused", "forgotten"
]
"""`applied` is switched on and off. `keeping` and `undoing` wait for the run to do so for good. The
last four are final."""

ACTIVE: frozenset[State] = frozenset({"proposed", "applied", "keeping", "undoing"})


@dataclass(frozen=True, slots=True)
class Treatment:
    """A remedy applied to a live run."""

    id: str
    remedy: str
    finding: str
    """Code of the finding that it treats; empty if another observer applied it without one."""
    changes: Mapping[str, Setting]
    before: Mapping[str, Setting]
    """Previous settings of the changed knobs."""
    proposed_step: int
    state: State = "proposed"
    requested_step: int = -1
    """The step of the last request to the run."""
    applied_step: int | None = None
    """The first step under it."""
    stages: tuple[Stage, ...] = ()
    """The stages in which it is switched on and off, as drawn."""
    awaits_stage: bool = False
    """Whether a stage was drawn that is not in the journal yet."""
    closed_step: int | None = None
    comparisons: tuple[Comparison, ...] = ()
    verdict: str = ""
    """Why it was closed."""
    reason: str = ""
    """Why it treats a symptom instead of the cause; empty if it does not."""

    @property
    def active(self) -> bool:
        """Whether it is not closed yet."""
        return self.state in ACTIVE

    def body(self) -> dict[str, Any]:
        """The fields that every journal line of a treatment has."""
        return {
            "treatment_id": self.id,
            "remedy": self.remedy,
            "finding": self.finding,
            "changes": dict(self.changes),
            "before": dict(self.before),
        }

    def proposal(self, finding: Finding) -> Event:
        """The journal line of its proposal, with the finding's evidence."""
        evidence = [
            {"metric": e.metric, "step": e.step, "value": e.value, "baseline": e.baseline}
            for e in finding.evidence
        ]
        body = {**self.body(), "summary": finding.summary, "evidence": evidence}
        if self.reason:
            body["reason"] = self.reason
        return Event("treatment-proposed", self.proposed_step, body)

    def closing(self, step: int) -> Event:
        """The journal line of its end."""
        metrics = [comparison.to_json() for comparison in self.comparisons]
        body = {**self.body(), "verdict": self.verdict, "metrics": metrics}
        return Event(f"treatment-{self.state}", step, body)


def treatment_from_event(event: Event) -> Treatment | None:
    """The treatment of a `treatment-proposed` or `treatment-applied` line.

    The journal is untrusted: a line that is not a treatment of known knobs gives None.
    """
    body = event.body
    treatment_id, remedy = body.get("treatment_id"), body.get("remedy")
    changes, before = _knobs(body.get("changes")), _knobs(body.get("before"))
    is_named = isinstance(treatment_id, str) and isinstance(remedy, str) and treatment_id
    if not is_named or not changes or not changes.keys() <= before.keys():
        return None
    finding = body.get("finding", "")
    return Treatment(
        id=str(treatment_id),
        remedy=str(remedy),
        finding=finding if isinstance(finding, str) else "",
        changes=changes,
        before={name: before[name] for name in changes},
        proposed_step=event.step,
        requested_step=event.step,
    )


def _knobs(data: object) -> dict[str, Setting]:
    if not isinstance(data, Mapping):
        return {}
    return {
        name: setting
        for name, setting in data.items()
        if is_knob(name) and isinstance(setting, bool | int | float | str)
    }
