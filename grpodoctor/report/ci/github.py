"""Findings as workflow commands of GitHub Actions, which turn into annotations.

An annotation is attached to the log of the run. The annotation of the verdict ends with the lines
of its fix. If the verdict contains a finding's sentence, the finding has no separate annotation;
the title of the verdict names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from grpodoctor.monitor.diagnosis.verdict import VerdictKind
from grpodoctor.monitor.report import Report
from grpodoctor.report.ci.fix_lines import fix_lines
from grpodoctor.report.ci.log_location import log_location
from grpodoctor.report.run.phrases import defect_line, finding_period
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


def render(reports: Sequence[Report], root: Path | None = None) -> str:
    """The verdicts and findings of runs, one workflow command per line.

    Args:
        reports: the reports on the runs.
        root: the checkout of the repository, to which the paths of logs are relative.
    """
    return "".join(
        f"{line}\n" for report in reports for line in _lines(report, log_location(report, root))
    )


def _lines(report: Report, path: str) -> Iterator[str]:
    verdict = report.diagnosis.verdict
    counted = set(map(id, report.diagnosis.counted))
    named = [finding for finding in report.findings if _is_in(finding.summary, verdict.text)]
    names = [f"{finding.code} {finding.name}" for finding in named]
    title = ", ".join([f"grpodoctor: {verdict.kind}", *names])
    message = "\n".join([_with_run(verdict.text, report), *fix_lines(report)])
    yield _command(_VERDICT_COMMANDS[verdict.kind], path, title, message)
    for defect in report.defects:
        yield _command("error", path, f"grpodoctor: defect of {defect.code}", defect_line(defect))
    for finding in report.findings:
        if finding not in named:
            level = _COMMANDS[finding.severity] if id(finding) in counted else "notice"
            yield _command(level, path, _title(finding), finding.summary)


def _is_in(summary: str, text: str) -> bool:
    return summary.rstrip(".").lower() in text.lower()


def _with_run(text: str, report: Report) -> str:
    """The verdict with the name of the run, if no file names it."""
    return text if report.run.log else f"{report.run.path}: {text}"


def _title(finding: Finding) -> str:
    return f"{finding.code} {finding.name} {finding_period(finding)}"


def _command(name: str, path: str, title: str, message: str) -> str:
    place = f"file={_property(path)},line=1," if path else ""
    properties = f"{place}title={_property(title)}"
    text = "\n".join(map(plain, message.split("\n")))
    return f"::{name} {properties}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(plain(text)).replace(":", "%3A").replace(",", "%2C")
