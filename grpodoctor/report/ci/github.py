"""Findings as workflow commands of GitHub Actions, which turn into annotations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from grpodoctor.monitor.diagnosis.verdict import VerdictKind
from grpodoctor.monitor.report import Report
from grpodoctor.report.run.phrases import finding_period
from grpodoctor.rules.base import Finding, Severity
from grpodoctor.support.safe_text import plain

_COMMANDS: Mapping[Severity, str] = {"critical": "error", "warning": "warning", "info": "notice"}
_VERDICT_COMMANDS: Mapping[VerdictKind, str] = {
    "sick": "error",
    "not examined": "error",
    "too short": "warning",
    "flat": "notice",
    "solved": "notice",
    "healthy": "notice",
}


def render(reports: Sequence[Report]) -> str:
    """The verdicts and findings of runs, one workflow command per line."""
    return "".join(f"{line}\n" for report in reports for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    verdict = report.diagnosis.verdict
    path = report.run.path
    counted = set(map(id, report.diagnosis.counted))
    yield _command(
        _VERDICT_COMMANDS[verdict.kind], path, f"grpodoctor: {verdict.kind}", verdict.text
    )
    for finding in report.findings:
        level = _COMMANDS[finding.severity] if id(finding) in counted else "notice"
        yield _command(level, path, _title(finding), finding.summary)


def _title(finding: Finding) -> str:
    return f"{finding.code} {finding.name} {finding_period(finding)}"


def _command(name: str, path: str, title: str, message: str) -> str:
    properties = f"file={_property(path)},line=1,title={_property(title)}"
    return f"::{name} {properties}::{_escaped(plain(message))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(plain(text)).replace(":", "%3A").replace(",", "%2C")
