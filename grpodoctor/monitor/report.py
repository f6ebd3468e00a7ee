"""The one report: what every format shows, and the JSON that programs read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpodoctor.frameworks.spelling import Spelled
from grpodoctor.rules.base import SEVERITIES, Evidence, Severity
from grpodoctor.vocabulary.knobs import Setting

SCHEMA_VERSION = 1
"""Version of the report's JSON."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Which run it is, and how much of it was read."""

    path: str
    framework: str
    first_step: int | None = None
    last_step: int | None = None
    steps: int = 0
    """Step lines read."""
    model: str = ""
    seed: int | None = None
    started: float = 0.0
    """Unix time at which recording began; 0 if unknown."""

    def to_json(self) -> dict[str, Any]:
        """The `run` object of the report."""
        return {
            "path": self.path,
            "framework": self.framework,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "steps": self.steps,
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """A remedy for a finding, with the change that it makes under the knobs in force."""

    id: str
    title: str
    applicability: str
    change: Mapping[str, Setting]
    """Knob to new setting; empty where a person has to act, or where it is already in place."""
    spelling: tuple[Spelled, ...]
    """The change in the words of a framework, or what a person is to do."""

    def to_json(self) -> dict[str, Any]:
        """One entry of a finding's `remedies`."""
        return {
            "id": self.id,
            "applicability": self.applicability,
            "change": dict(self.change),
            "spelling": [
                {"key": each.key, "value": each.value, "note": each.note} for each in self.spelling
            ],
        }


@dataclass(frozen=True, slots=True)
class ReportedFinding:
    """A finding with its remedies resolved."""

    code: str
    name: str
    severity: Severity
    onset_step: int
    last_step: int
    active: bool
    summary: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Advice, ...]
    references: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """One entry of `findings`."""
        return {
            "code": self.code,
            "name": self.name,
            "severity": self.severity,
            "onset_step": self.onset_step,
            "last_step": self.last_step,
            "active": self.active,
            "summary": self.summary,
            "evidence": [evidence_to_json(each) for each in self.evidence],
            "remedies": [each.to_json() for each in self.remedies],
            "references": list(self.references),
        }


def evidence_to_json(evidence: Evidence) -> dict[str, Any]:
    """One entry of `evidence`; `where` only if something caused it, numbers finite or null."""
    data: dict[str, Any] = {
        "metric": evidence.metric,
        "step": evidence.step,
        "value": _finite(evidence.value),
        "baseline": _finite(evidence.baseline),
    }
    return data if evidence.where is None else {**data, "where": evidence.where}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class SkippedRule:
    """A rule that could not look."""

    code: str
    missing: tuple[str, ...]
    how: str
    """How to have the missing metrics recorded."""


@dataclass(frozen=True, slots=True)
class InapplicableRule:
    """A rule that has no meaning in this run."""

    code: str
    why: str


@dataclass(frozen=True, slots=True)
class DamagedLine:
    """A line of the run that could not be read."""

    file: str
    line: int
    why: str


@dataclass(frozen=True, slots=True)
class TreatmentEntry:
    """One line of the journal of treatments."""

    step: int
    kind: str
    """`proposed`, `applied`, `refused`, `kept` or `undone`."""
    remedy: str
    body: Mapping[str, Any]
    """Everything else the journal says: before, after, reason."""

    @property
    def detail(self) -> str:
        """What changed and why, on one line."""
        before, after = self.body.get("before"), self.body.get("after", self.body.get("changes"))
        parts = []
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            parts += [f"{knob} {before.get(knob)} → {setting}" for knob, setting in after.items()]
        parts += [str(self.body[key]) for key in ("verdict", "reason") if self.body.get(key)]
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """One entry of `treatments`."""
        return {**self.body, "step": self.step, "kind": self.kind, "remedy": self.remedy}


@dataclass(frozen=True, slots=True)
class Report:
    """What is known about a run: the same in every format."""

    run: RunFacts
    findings: tuple[ReportedFinding, ...] = ()
    skipped: tuple[SkippedRule, ...] = ()
    not_applicable: tuple[InapplicableRule, ...] = ()
    quiet: tuple[str, ...] = ()
    unmapped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """How a foreign log was read: what it was taken for and why, what of it was not used."""
    damage: tuple[DamagedLine, ...] = ()
    """The first damaged lines."""
    damage_total: int = 0
    """How many there are in all."""
    treatments: tuple[TreatmentEntry, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object that `check --output-format json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "run": self.run.to_json(),
            "findings": [each.to_json() for each in self.findings],
            "skipped": [
                {"code": each.code, "missing": list(each.missing), "how": each.how}
                for each in self.skipped
            ],
            "not_applicable": [
                {"code": each.code, "why": each.why} for each in self.not_applicable
            ],
            "quiet": list(self.quiet),
            "unmapped": list(self.unmapped),
            "notes": list(self.notes),
            "damage": {
                "total": self.damage_total,
                "lines": [
                    {"file": each.file, "line": each.line, "why": each.why} for each in self.damage
                ],
            },
            "treatments": [each.to_json() for each in self.treatments],
        }

    def reaches(self, severity: Severity) -> bool:
        """Whether a finding, active or resolved, is at or above `severity`."""
        floor = SEVERITIES.index(severity)
        return any(SEVERITIES.index(each.severity) >= floor for each in self.findings)
