"""The report of a run: what every output format shows, and the JSON that programs read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpodoctor.monitor.advice import Advice, usable
from grpodoctor.monitor.crash_report import CrashReport
from grpodoctor.monitor.diagnosis.diagnose import Diagnosis
from grpodoctor.monitor.diagnosis.verdict import Verdict
from grpodoctor.monitor.response_lengths import Lengths
from grpodoctor.rules.base import SEVERITIES, Evidence, Finding
from grpodoctor.rules.diagnosis import Defect, Inapplicable, Skipped
from grpodoctor.support.files.growing_files import Damage

SCHEMA_VERSION = 2
"""Version of the report's JSON. Version 2 adds `verdict`, `causes`, `coverage` and `defects`, and
orders the findings by cause; every key of version 1 is unchanged."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The identity of a run, and how much of it was read."""

    path: str
    framework: str
    first_step: int | None = None
    last_step: int | None = None
    steps: int = 0
    """Number of step records read."""
    model: str = ""
    seed: int | None = None
    started: float = 0.0
    """Unix time at which recording began; 0 if unknown."""
    unread_steps: int = 0
    """Steps between the first and the last that were not read."""
    log: str = ""
    """The file on this machine that has the steps, or the first of several; empty for a run that
    was downloaded or read from a stream."""

    @property
    def missing_steps(self) -> int:
        """Steps between the first and the last that have no record.

        The bundled trainer records each step; other trainers may log every n-th only.
        """
        return self.unread_steps if self.framework == "grpodoctor" else 0

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
class TreatmentEntry:
    """One line of the treatment journal."""

    step: int
    kind: str
    """`proposed`, `applied`, `refused`, `kept` or `undone`."""
    remedy: str
    body: Mapping[str, Any]
    """The other fields of the journal line: before, after, reason."""

    @property
    def detail(self) -> str:
        """The changed settings and the reason, on one line."""
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
class EarlierRun:
    """A run that the same log holds before the one of the report."""

    number: int
    """Its place in the log, from 1."""
    first_step: int
    last_step: int
    verdict: Verdict
    lengths: Lengths = field(default_factory=Lengths)
    """The lengths of its responses."""

    @property
    def line(self) -> str:
        """The run and its verdict, on one line."""
        name = f"run {self.number}, steps {self.first_step} to {self.last_step}"
        return f"{name}: {self.verdict.line}"

    def limit_remark(self, last: Lengths) -> str:
        """The length limit that only the last run of the log shows; empty if it changes nothing.

        Each run is judged by its own readings, so a limit that one of them does not reach often
        enough is unknown there.
        """
        if self.lengths.limit or not last.limit or not last.is_near(self.lengths.level):
            return ""
        share = self.lengths.level / last.limit
        return (
            f"In run {self.number}, responses average {self.lengths.level:.0f} tokens, {share:.0%} "
            f"of the limit of {last.limit:g} that only the last run shows."
        )

    def to_json(self) -> dict[str, Any]:
        """One entry of `earlier_runs`."""
        return {
            "number": self.number,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "verdict": self.verdict.to_json(),
        }


def with_earlier_runs(verdict: Verdict, runs: Sequence[EarlierRun]) -> Verdict:
    """The verdict on the last run of a log, with the earlier ones that were sick.

    A run that learns needs no look back: its user mended what was wrong before.
    """
    sick = [run for run in runs if run.verdict.kind == "sick"]
    if not sick or verdict.kind not in ("flat", "too short"):
        return verdict
    *others, last = [str(run.number) for run in sick]
    names = f"runs {', '.join(others)} and {last} were" if others else f"run {last} was"
    codes = ", ".join(dict.fromkeys(run.verdict.code for run in sick if run.verdict.code))
    causes = f" ({codes})" if codes else ""
    earlier = f"Earlier in this log, {names} sick{causes}."
    return replace(verdict, sentence=f"{verdict.sentence} {earlier}")


@dataclass(frozen=True, slots=True)
class Report:
    """Everything known about a run."""

    run: RunFacts
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    advice: Mapping[str, Advice] = field(default_factory=dict)
    """The remedies of the findings by id, resolved for this run's settings."""
    skipped: tuple[Skipped, ...] = ()
    not_applicable: tuple[Inapplicable, ...] = ()
    defects: tuple[Defect, ...] = ()
    """Rules that raised an exception."""
    quiet: tuple[str, ...] = ()
    """Codes of the rules that ran and found nothing."""
    unmapped: tuple[str, ...] = ()
    """Log keys that map to no metric."""
    notes: tuple[str, ...] = ()
    """How the log was read: the detected format and the reason, the keys that were not used."""
    damage: tuple[Damage, ...] = ()
    """The first damaged lines."""
    damage_total: int = 0
    """Number of damaged lines."""
    treatments: tuple[TreatmentEntry, ...] = ()
    earlier_runs: tuple[EarlierRun, ...] = ()
    """The latest of the runs that the log holds before this one, in their order."""
    lengths: Lengths = field(default_factory=Lengths)
    """The lengths of the responses, to compare earlier runs with."""
    crash: CrashReport | None = None
    """The error with which the log ends. It is no fault of the training: neither the verdict nor
    `reaches` depends on it."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The most important problem first, each cause followed by its symptoms."""
        return self.diagnosis.findings

    def to_json(self) -> dict[str, Any]:
        """The object that `check --output-format json` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            **self.diagnosis.to_json(),
            "run": self.run.to_json(),
            "findings": [finding_to_json(finding, self.advice) for finding in self.findings],
            "skipped": [
                {"code": rule.code, "missing": list(rule.missing), "how": rule.how}
                for rule in self.skipped
            ],
            "not_applicable": [
                {"code": rule.code, "why": rule.why} for rule in self.not_applicable
            ],
            "defects": [
                {"code": each.code, "step": each.step, "error": each.error, "count": each.count}
                for each in self.defects
            ],
            "quiet": list(self.quiet),
            "unmapped": list(self.unmapped),
            "notes": list(self.notes),
            "damage": {
                "total": self.damage_total,
                "lines": [
                    {"file": damage.file, "line": damage.line, "why": damage.why}
                    for damage in self.damage
                ],
            },
            "treatments": [treatment.to_json() for treatment in self.treatments],
            "earlier_runs": [run.to_json() for run in self.earlier_runs],
            "crash": self.crash.to_json() if self.crash else None,
        }

    def reaches(self, severity: str) -> bool:
        """Whether an active finding is at or above `severity`.

        Findings that are resolved, or that the run's success explains, do not count.
        """
        ranks: list[str] = list(SEVERITIES)
        floor = ranks.index(severity)
        return any(ranks.index(finding.severity) >= floor for finding in self.diagnosis.counted)


def finding_to_json(finding: Finding, advice: Mapping[str, Advice]) -> dict[str, Any]:
    """One entry of `findings`.

    Args:
        finding: the finding.
        advice: its remedies by id, resolved for the run's settings.
    """
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "onset_step": finding.onset_step,
        "last_step": finding.last_step,
        "active": finding.active,
        "summary": finding.summary,
        "evidence": [evidence_to_json(evidence) for evidence in finding.evidence],
        "remedies": [each.to_json() for each in _remedies(finding, advice)],
        "references": list(finding.references),
    }


def _remedies(finding: Finding, advice: Mapping[str, Advice]) -> list[Advice]:
    """The finding's remedies, and their alternatives if none of them applies to the run."""
    ids = [*finding.remedies, *(each.id for each in usable(finding.remedies, advice))]
    return [advice[remedy] for remedy in dict.fromkeys(ids)]


def evidence_to_json(evidence: Evidence) -> dict[str, Any]:
    """One entry of `evidence`.

    Non-finite numbers become null. `where` is present only if the evidence names a cause.
    """
    data: dict[str, Any] = {
        "metric": evidence.metric,
        "step": evidence.step,
        "value": _finite(evidence.value),
        "baseline": _finite(evidence.baseline),
        "median": _finite(evidence.median),
    }
    return data if evidence.where is None else {**data, "where": evidence.where}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
