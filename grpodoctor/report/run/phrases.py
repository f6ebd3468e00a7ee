"""The phrases that the human formats share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpodoctor.frameworks.knob_mapping import SettingLine
from grpodoctor.monitor.report import Report, RunFacts
from grpodoctor.monitor.vitals import Trend
from grpodoctor.rules.base import Finding, Severity
from grpodoctor.support.safe_text import plain

SEVERITY_STYLES: dict[Severity, str] = {
    "critical": "bold red",
    "warning": "bold yellow",
    "info": "bold blue",
}
"""Styles of severities on a terminal."""

TREND_ARROWS: dict[Trend, str] = {"up": "↑", "down": "↓", "steady": "→", "unknown": ""}

NOTHING_TO_CHANGE = "nothing to change here: in place, or its setting is not known"
"""Beside a remedy that makes no change under the run's own settings."""


def setting_line(spelled: SettingLine) -> str:
    """A setting as one would type it, with what to mind as a comment."""
    remark = f"  # {spelled.note}" if spelled.key and spelled.note else ""
    return spelled.line + remark


def counted(count: int, noun: str) -> str:
    """A count with its noun in the right number."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def lasting(finding: Finding) -> str:
    """How long a finding has been there."""
    if finding.active:
        return f"since step {finding.onset_step}"
    return f"step {finding.onset_step} to {finding.last_step}, resolved"


def facts_line(run: RunFacts) -> str:
    """Which run it is, on one line."""
    parts = [run.framework]
    if run.model:
        parts.append(run.model)
    if run.seed is not None:
        parts.append(f"seed {run.seed}")
    if run.first_step is None:
        return " · ".join([*parts, "no steps yet"])
    return " · ".join([*parts, f"steps {run.first_step} to {run.last_step} ({run.steps} read)"])


def damage_line(report: Report) -> str:
    """How many lines could not be read, and which the first was."""
    first = report.damage[0]
    lines = counted(report.damage_total, "damaged line")
    place = f"{first.file} line {first.line}" if first.line else f"all of {first.file}"
    return f"{lines} left out; the first: {place}: {first.why}"


def tally(report: Report) -> str:
    """The outcome on one line."""
    counts = {
        severity: sum(each.severity == severity for each in report.findings)
        for severity in ("critical", "warning", "info")
    }
    found = [
        f"{counts['critical']} critical",
        counted(counts["warning"], "warning"),
        f"{counts['info']} info",
    ]
    shown = [text for text, count in zip(found, counts.values(), strict=True) if count]
    parts = [", ".join(shown) or "no findings", f"{counted(len(report.quiet), 'rule')} quiet"]
    if report.skipped:
        parts.append(f"{len(report.skipped)} skipped")
    if report.not_applicable:
        parts.append(f"{len(report.not_applicable)} not applicable")
    return " · ".join(parts)


def news_line(news: Mapping[str, Any]) -> str:
    """One piece of news of a live run (see `Session.news`) as one harmless line."""
    kind = plain(str(news["kind"]))
    if kind.startswith("finding-"):
        finding = news["finding"]
        what = f"{finding['severity']} {finding['code']} {finding['name']}"
        text = f"step {news['step']}: {what} {kind.removeprefix('finding-')}: {finding['summary']}"
    elif kind == "restarted":
        text = "another run began in the directory"
    else:
        remedy, reason = news.get("remedy", ""), news.get("reason") or news.get("verdict") or ""
        text = f"step {news['step']}: {kind} {remedy}" + (f": {reason}" if reason else "")
    return plain(text, limit=400)
