"""Findings as SARIF 2.1.0, which code scanning and editors read.

All results are in one SARIF run: GitHub refuses several runs of one tool in a file. A result names
the log as its place; the step of the onset is a logical location. The result that the verdict is
about has the verdict and its fix as its text, and counts in a sick run even if its finding is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from grpodoctor import __version__
from grpodoctor.monitor.diagnosis.problems import Problem
from grpodoctor.monitor.report import Report, evidence_to_json
from grpodoctor.report.ci.fix_lines import fix_lines
from grpodoctor.report.ci.log_location import log_location
from grpodoctor.report.run.phrases import defect_line, finding_period
from grpodoctor.rules.base import Finding, Rule, Severity
from grpodoctor.rules.catalogue import rule_of
from grpodoctor.support.safe_text import plain

_LEVELS: Mapping[Severity, str] = {"critical": "error", "warning": "warning", "info": "note"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_PAGE = "https://github.com/grpodoctor/grpodoctor"


def to_json(reports: Sequence[Report], root: Path | None = None) -> dict[str, Any]:
    """The SARIF log of runs.

    Args:
        reports: the reports on the runs.
        root: the checkout of the repository, to which the paths of logs are relative.
    """
    codes = sorted({finding.code for report in reports for finding in report.findings})
    places = {code: index for index, code in enumerate(codes)}
    driver = {
        "name": "grpodoctor",
        "version": __version__,
        "semanticVersion": __version__,
        "informationUri": _PAGE,
        "rules": [_rule(rule_of(code)) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [_invocation(reports)],
        "results": [result for report in reports for result in _results(report, places, root)],
        "properties": {"verdicts": [_verdict(report) for report in reports]},
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _invocation(reports: Sequence[Report]) -> dict[str, Any]:
    """Whether the rules ran, with the defects of rules and the logs that were not examined."""
    defects = [defect for report in reports for defect in report.defects]
    notifications = [
        {
            "level": "error",
            "message": {"text": plain(defect_line(defect))},
            "associatedRule": {"id": defect.code},
        }
        for defect in defects
    ]
    verdicts = [(report.run.path, report.diagnosis.verdict) for report in reports]
    notifications += [
        {"level": "warning", "message": {"text": plain(f"{path}: {verdict.line}")}}
        for path, verdict in verdicts
        if verdict.kind == "not examined"
    ]
    invocation: dict[str, Any] = {"executionSuccessful": not defects}
    return (
        {**invocation, "toolExecutionNotifications": notifications} if notifications else invocation
    )


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "help": {"text": rule.manual()},
        "properties": {"tags": [rule.family]},
    }


def _verdict(report: Report) -> dict[str, Any]:
    return {"path": plain(report.run.path), **report.diagnosis.verdict.to_json()}


def _results(report: Report, places: Mapping[str, int], root: Path | None) -> list[dict[str, Any]]:
    path = log_location(report, root) or report.run.path
    counted, verdict = set(map(id, report.diagnosis.counted)), report.diagnosis.verdict
    pairs = [(each, problem) for problem in report.diagnosis.problems for each in problem.findings]
    main = next((id(each) for each, _ in pairs if each.code == verdict.code), None)
    if verdict.kind == "sick" and main is not None:
        counted.add(main)
    texts = {main: "\n".join([plain(verdict.line), *fix_lines(report)])} if main else {}
    return [
        _result(finding, problem, path, places[finding.code], texts.get(id(finding), ""),
                counted=id(finding) in counted)
        for finding, problem in pairs
    ]  # fmt: skip


def _result(
    finding: Finding, problem: Problem, path: str, place: int, verdict: str, *, counted: bool
) -> dict[str, Any]:
    text = verdict or plain(f"{finding.summary} ({finding.name}, {finding_period(finding)})")
    return {
        "ruleId": finding.code,
        "ruleIndex": place,
        "level": _LEVELS[finding.severity] if counted else "note",
        "message": {"text": text},
        "locations": [_location(path, finding)],
        "partialFingerprints": {"finding/v1": f"{finding.code}:{finding.onset_step}"},
        "properties": {
            "severity": finding.severity,
            "active": finding.active,
            "onset_step": finding.onset_step,
            "last_step": finding.last_step,
            "cause": problem.cause.code,
            "evidence": [evidence_to_json(evidence) for evidence in finding.evidence],
            "remedies": list(finding.remedies),
        },
    }


def _location(path: str, finding: Finding) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(plain(path), safe="/:")},
            "region": {"startLine": 1},
        },
        "logicalLocations": [{"name": f"step {finding.onset_step}", "kind": "training step"}],
    }
