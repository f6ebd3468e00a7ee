"""The results of a preflight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.rules.base import SEVERITIES, Severity

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """A finding and the check that raised it."""

    code: str
    name: str
    finding: CheckFinding

    @property
    def severity(self) -> Severity:
        """Severity of the finding."""
        return self.finding.severity


@dataclass(frozen=True, slots=True)
class UnfinishedCheck:
    """A check that was skipped or failed."""

    code: str
    name: str
    reason: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """The check as JSON."""
        return {"code": self.code, "name": self.name, "why": self.reason, "how": self.remedy}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightResults:
    """The results of all checks."""

    model: str
    rows: int
    """Prompts that were read."""
    findings: tuple[PreflightFinding, ...]
    """Most severe first."""
    passed: tuple[str, ...]
    """Codes of the checks without findings."""
    skipped: tuple[UnfinishedCheck, ...]
    failed: tuple[UnfinishedCheck, ...]
    """Checks during which an engine or the reward function failed."""
    seconds: float
    sampled_rows: int = 0
    """Prompts for which an engine sampled responses."""
    filtered_rows: int | None = None
    """Prompts written by --write-filtered; None without that option."""
    whole_file: bool = True
    """Whether all prompts of the file were read."""
    reward: str = ""
    """How the reward function is called; empty without one."""
    settings_framework: str = ""
    """Framework of the config if nothing else was checked; otherwise empty."""

    def reaches(self, severity: str) -> bool:
        """Whether a finding is at least as severe; never true for `never`."""
        if severity not in SEVERITIES:
            return False
        least = SEVERITIES.index(severity)
        return any(SEVERITIES.index(finding.severity) >= least for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The results as JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "rows": self.rows,
            "asked": self.sampled_rows,
            "reward": self.reward,
            "findings": [
                {
                    "code": entry.code,
                    "name": entry.name,
                    "severity": entry.severity,
                    "summary": entry.finding.summary,
                    "advice": list(entry.finding.advice),
                    "details": list(entry.finding.details),
                    "figures": dict(entry.finding.figures),
                }
                for entry in self.findings
            ],
            "passed": list(self.passed),
            "skipped": [entry.to_json() for entry in self.skipped],
            "failed": [entry.to_json() for entry in self.failed],
            "filtered": self.filtered_rows,
            "seconds": round(self.seconds, 3),
        }
