"""The report for a terminal, or for a pipe."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grpodoctor.frameworks.knob_mapping import SettingLine
from grpodoctor.monitor.advice import Advice
from grpodoctor.monitor.report import Report, TreatmentEntry
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.monitor.vitals import Vital, format_number
from grpodoctor.report.console import indented, printed
from grpodoctor.report.run.phrases import (
    NOTHING_TO_CHANGE,
    SEVERITY_STYLES,
    TREND_ARROWS,
    damage_line,
    facts_line,
    lasting,
    setting_line,
    tally,
)
from grpodoctor.rules.base import Evidence, Finding
from grpodoctor.support.safe_text import plain

_ID_WIDTH = 40


def render(dossier: ReportData, *, width: int = 80, colour: bool = False) -> str:
    """The report as text.

    Args:
        dossier: what to show.
        width: columns to wrap at; lines that one would copy are never wrapped.
        colour: write terminal colours.
    """
    return printed(_parts(dossier), width=width, colour=colour)


def summary_lines(dossier: ReportData) -> list[str]:
    """The outcome in a line per finding and per verdict on a treatment, without markup."""
    report = dossier.report
    findings = [
        f"{each.severity} {each.code} {each.name} ({lasting(each)}): {plain(each.summary)}"
        for each in report.findings
    ]
    treatments = [_treatment(each) for each in report.treatments if each.kind != "proposed"]
    return [plain(facts_line(report.run)), *findings, *treatments, tally(report)]


def _parts(dossier: ReportData) -> list[RenderableType]:
    report = dossier.report
    parts: list[RenderableType] = [
        Text(plain(report.run.path), style="bold", no_wrap=True),
        Text(plain(facts_line(report.run)), style="dim"),
    ]
    if report.damage_total:
        parts.append(Text(plain(damage_line(report)), style="yellow"))
    explained: set[str] = set()
    for finding in report.findings:
        parts += ["", *_finding(finding, report.advice, explained)]
    if dossier.vitals:
        parts += ["", _heading("Vitals"), _vitals(dossier.vitals)]
    parts += _treatments(report) + _unseen(report)
    parts += ["", Text(tally(report), style="bold")]
    return parts


def _heading(title: str) -> Text:
    return Text(title, style="bold underline")


def _finding(
    finding: Finding, resolved: Mapping[str, Advice], explained: set[str]
) -> list[RenderableType]:
    style = SEVERITY_STYLES[finding.severity]
    title = Text.assemble(
        (finding.severity.upper(), style), "  ", (f"{finding.code} {finding.name}", "bold")
    )
    title.append(f"  {lasting(finding)}", style="dim")
    parts: list[RenderableType] = [title, indented(plain(finding.summary))]
    if finding.evidence:
        parts.append(Padding(_evidence(finding.evidence), (0, 0, 0, 2)))
    for remedy in finding.remedies:
        parts += _advice(resolved[remedy], explained)
    parts += [indented(f"see: {plain(each)}", "dim") for each in finding.references]
    return parts


def _evidence(evidence: tuple[Evidence, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("evidence", no_wrap=True)
    for title in ("step", "value", "against"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for each in evidence:
        table.add_row(
            Text(plain(each.metric)),
            str(each.step),
            format_number(each.value),
            format_number(each.baseline) if each.baseline is not None else "",
            Text(plain(each.where or "", limit=_ID_WIDTH)),
        )
    return table


def _advice(advice: Advice, explained: set[str]) -> list[RenderableType]:
    head = f"remedy: {advice.id} ({advice.applicability}) {advice.title}"
    if advice.id in explained:
        return [indented(plain(f"{head}, as above"))]
    explained.add(advice.id)
    if not advice.spelling:
        return [indented(plain(f"{head}; {NOTHING_TO_CHANGE}"))]
    return [indented(plain(head)), *(_setting(each) for each in advice.spelling)]


def _setting(setting: SettingLine) -> RenderableType:
    text = plain(setting_line(setting))
    # A setting is to be copied, so it stays on its line; words for a person are wrapped.
    return Text(f"    {text}", "cyan", no_wrap=True) if setting.key else indented(text, "cyan", 4)


def _vitals(vitals: tuple[Vital, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    for title in ("now", "start"):
        table.add_column(title, justify="right")
    table.add_column("")
    for vital in vitals:
        note = Text(plain(vital.why_not), style="dim")
        arrow = TREND_ARROWS[vital.trend]
        now = "n/a" if vital.why_not else format_number(vital.now)
        table.add_row(
            vital.label, now, format_number(vital.start), note if vital.why_not else arrow
        )
    return table


def _treatments(report: Report) -> list[RenderableType]:
    if not report.treatments:
        return []
    lines = [indented(_treatment(each)) for each in report.treatments]
    return ["", _heading("Treatments"), Group(*lines)]


def _treatment(entry: TreatmentEntry) -> str:
    return plain(f"step {entry.step}: {entry.remedy} {entry.kind}; {entry.detail}")


def _unseen(report: Report) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if report.skipped:
        parts += ["", _heading("Skipped, for want of data")]
        for skipped in report.skipped:
            parts.append(indented(f"{skipped.code} needs {plain(', '.join(skipped.missing))}"))
            if skipped.how:
                parts.append(indented(plain(skipped.how), "dim", 4))
    if report.not_applicable:
        parts += ["", _heading("Not applicable")]
        parts += [indented(f"{each.code}: {plain(each.why)}") for each in report.not_applicable]
    if report.notes:
        parts += ["", _heading("How the log was read")]
        parts += [indented(plain(note)) for note in report.notes]
    if report.unmapped:
        parts += ["", _heading("Keys that no metric is known for")]
        parts.append(indented(plain(", ".join(report.unmapped))))
    return parts
