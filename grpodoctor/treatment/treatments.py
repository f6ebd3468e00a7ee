"""A treatment, and how it stands in the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from grpodoctor.rules.base import Finding
from grpodoctor.runs.records import Event
from grpodoctor.treatment.assessment import Comparison
from grpodoctor.vocabulary.knobs import KNOBS, Setting

State = Literal["proposed", "applied", "undoing", "kept", "undone", "refused", "forgotten"]
"""`undoing` waits for the run to take it back. The last four are final."""

ACTIVE: frozenset[State] = frozenset({"proposed", "applied", "undoing"})


@dataclass(frozen=True, slots=True)
class Treatment:
    """A remedy at work on a live run."""

    id: str
    remedy: str
    finding: str
    """Code of the finding that it was given for; empty if it came from elsewhere."""
    changes: Mapping[str, Setting]
    before: Mapping[str, Setting]
    """The changed knobs as they were."""
    proposed_step: int
    state: State = "proposed"
    asked_step: int = -1
    """The step at which the run was last asked for something."""
    applied_step: int | None = None
    """The first step under it."""
    closed_step: int | None = None
    comparisons: tuple[Comparison, ...] = ()
    verdict: str = ""
    """Why it ended as it did."""

    @property
    def active(self) -> bool:
        """Whether it still waits for something."""
        return self.state in ACTIVE

    def body(self) -> dict[str, Any]:
        """What every journal line of it says."""
        return {
            "treatment_id": self.id,
            "remedy": self.remedy,
            "finding": self.finding,
            "changes": dict(self.changes),
            "before": dict(self.before),
        }

    def proposal(self, finding: Finding) -> Event:
        """The journal line of its proposal, with what it rests on."""
        evidence = [
            {"metric": e.metric, "step": e.step, "value": e.value, "baseline": e.baseline}
            for e in finding.evidence
        ]
        body = {**self.body(), "summary": finding.summary, "evidence": evidence}
        return Event("treatment-proposed", self.proposed_step, body)

    def closing(self, step: int) -> Event:
        """The journal line of its end."""
        metrics = [each.to_json() for each in self.comparisons]
        body = {**self.body(), "verdict": self.verdict, "metrics": metrics}
        return Event(f"treatment-{self.state}", step, body)


def from_event(event: Event) -> Treatment | None:
    """The treatment that a `treatment-proposed` or `treatment-applied` line speaks of.

    Anybody may have written the journal: what is not a treatment of known knobs gives None.
    """
    body = event.body
    treatment_id, remedy = body.get("treatment_id"), body.get("remedy")
    changes, before = _knobs(body.get("changes")), _knobs(body.get("before"))
    named = isinstance(treatment_id, str) and isinstance(remedy, str) and treatment_id
    if not named or not changes or not changes.keys() <= before.keys():
        return None
    finding = body.get("finding", "")
    return Treatment(
        id=str(treatment_id),
        remedy=str(remedy),
        finding=finding if isinstance(finding, str) else "",
        changes=changes,
        before={name: before[name] for name in changes},
        proposed_step=event.step,
        asked_step=event.step,
    )


def _knobs(data: object) -> dict[str, Setting]:
    if not isinstance(data, Mapping):
        return {}
    return {
        name: setting
        for name, setting in data.items()
        if name in KNOBS and isinstance(setting, bool | int | float | str)
    }
