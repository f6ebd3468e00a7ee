"""The report as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_mapping import SettingLine
from grpodoctor.monitor.advice import Advice
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.monitor.vitals import Vital, format_number
from grpodoctor.report.run.phrases import (
    NOTHING_TO_CHANGE,
    TREND_ARROWS,
    damage_line,
    facts_line,
    lasting,
    setting_line,
    tally,
)
from grpodoctor.rules.base import Finding
from grpodoctor.support.safe_text import code_span, markdown


def render(dossier: ReportData) -> str:
    """The report as Markdown."""
    report = dossier.report
    lines = [
        f"# Training health of {code_span(report.run.path)}",
        "",
        markdown(facts_line(report.run)),
    ]
    lines += ["", f"**{tally(report)}**"]
    if report.damage_total:
        lines += ["", f"> {markdown(damage_line(report))}"]
    for finding in report.findings:
        lines += ["", *_finding(finding, report.advice)]
    if dossier.vitals:
        lines += ["", "## Vitals", "", *_vitals(dossier.vitals)]
    lines += _treatments(report) + _unseen(report)
    return "\n".join(lines) + "\n"


def _finding(finding: Finding, resolved: Mapping[str, Advice]) -> list[str]:
    title = f"## {finding.severity}: {finding.code} {markdown(finding.name)}, {lasting(finding)}"
    lines = [title, "", markdown(finding.summary)]
    if finding.evidence:
        lines += ["", "| evidence | step | value | against | where |", "|---|---:|---:|---:|---|"]
    for each in finding.evidence:
        baseline = format_number(each.baseline) if each.baseline is not None else ""
        cells = [code_span(each.metric), str(each.step), format_number(each.value), baseline]
        lines.append(_row([*cells, code_span(each.where or "", limit=80)]))
    if finding.remedies:
        lines += ["", "Remedies:", ""]
    for remedy in finding.remedies:
        advice = resolved[remedy]
        lines.append(
            f"- **{markdown(advice.id)}** ({advice.applicability}): {markdown(advice.title)}"
        )
        lines += [f"  - {_setting(each)}" for each in advice.spelling]
        lines += [] if advice.spelling else [f"  - {NOTHING_TO_CHANGE}"]
    if finding.references:
        lines += ["", *(f"See {markdown(each)}  " for each in finding.references)]
    return lines


def _setting(setting: SettingLine) -> str:
    return code_span(setting_line(setting)) if setting.key else markdown(setting.note)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _vitals(vitals: tuple[Vital, ...]) -> list[str]:
    rows = [
        _row([vital.label, "n/a", "", markdown(vital.why_not)])
        if vital.why_not
        else _row(
            [
                vital.label,
                format_number(vital.now),
                format_number(vital.start),
                TREND_ARROWS[vital.trend],
            ]
        )
        for vital in vitals
    ]
    return ["| | now | start | |", "|---|---:|---:|---|", *rows]


def _treatments(report: Report) -> list[str]:
    if not report.treatments:
        return []
    rows = [
        _row([str(each.step), markdown(each.remedy), markdown(each.kind), markdown(each.detail)])
        for each in report.treatments
    ]
    head = ["| step | remedy | | |", "|---:|---|---|---|"]
    return ["", "## Treatments", "", *head, *rows]


def _unseen(report: Report) -> list[str]:
    lines: list[str] = []
    if report.skipped:
        lines += ["", "## Skipped, for want of data", ""]
    for each in report.skipped:
        missing = ", ".join(code_span(name) for name in each.missing)
        lines.append(
            f"- {each.code} needs {missing}" + (f": {markdown(each.how)}" if each.how else "")
        )
    if report.not_applicable:
        lines += ["", "## Not applicable", ""]
        lines += [f"- {each.code}: {markdown(each.why)}" for each in report.not_applicable]
    if report.notes:
        lines += ["", "## How the log was read", ""]
        lines += [f"- {markdown(note)}" for note in report.notes]
    if report.unmapped:
        lines += ["", "## Keys that no metric is known for", ""]
        lines.append(", ".join(code_span(key) for key in report.unmapped))
    return lines
