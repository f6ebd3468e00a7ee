"""The findings of a run as cards: each cause with its symptoms, its test and its remedies."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from grpodoctor.frameworks.knob_mapping import SettingLine
from grpodoctor.monitor.advice import Advice
from grpodoctor.monitor.diagnosis.problems import Problem, Symptom
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.vitals import format_number
from grpodoctor.report.run.phrases import finding_period
from grpodoctor.report.view import (
    Block,
    Bullets,
    Card,
    Column,
    Inline,
    Paragraph,
    Remedy,
    Setting,
    Span,
    Table,
    code,
)
from grpodoctor.rules.base import Evidence, Finding
from grpodoctor.support.safe_text import plain

_MAX_ID_LETTERS = 80
_MAIN_EVIDENCE = 3
_MOST_SYMPTOMS = 4
_MOST_LINES = 3
"""Settings of a further remedy in a brief report; a remedy with more is named only."""

CardDetail = Literal["full", "main", "short"]
"""`full`: everything; `main`: the first problem of a brief report; `short`: the following ones."""


def anchor_of(finding: Finding) -> str:
    """The place of a finding on an HTML page."""
    return f"finding-{finding.code}-{finding.onset_step}"


def problem_card(problem: Problem, report: Report, detail: CardDetail = "full") -> Card:
    """The card of a cause, with the symptoms that it explains.

    Args:
        problem: the cause and its symptoms.
        report: for the remedies.
        detail: how much to show.
    """
    card = _card(problem.cause, report, after=_consequences(problem, detail), detail=detail)
    is_in_verdict = problem.cause.code == report.diagnosis.verdict.code
    # The verdict, a few lines above, has the summary already.
    return replace(card, body=card.body[1:]) if detail == "main" and is_in_verdict else card


def symptom_card(symptom: Symptom, problem: Problem, report: Report) -> Card:
    """The card of a finding that another one explains."""
    because = f": {symptom.because}" if symptom.because else ""
    cause = Paragraph(
        (f"explained by {problem.cause.code} {problem.cause.name}{because}",), "faint"
    )
    return _card(symptom.finding, report, after=(cause,))


def _card(
    finding: Finding, report: Report, *, after: tuple[Block, ...], detail: CardDetail = "full"
) -> Card:
    evidence = finding.evidence[: {"full": None, "main": _MAIN_EVIDENCE, "short": 0}[detail]]
    table = (_evidence(evidence, with_cause=detail == "full"),) if evidence else ()
    return Card(
        tone=finding.severity,
        badge=finding.severity,
        code=finding.code,
        title=finding.name,
        note=finding_period(finding),
        body=(Paragraph(finding.summary), *table, *after),
        advice=_advice(finding, report, detail),
        references=finding.references if detail == "full" else (),
        anchor=anchor_of(finding),
        resolved=not finding.active,
    )


def _advice(finding: Finding, report: Report, detail: CardDetail) -> tuple[Block, ...]:
    """The remedies: all in full, or the first in full and the settings of the others if short."""
    remedies = _offered(finding, report)
    if detail == "full":
        return tuple(map(_remedy, remedies))
    shown = [*remedies[:1], *filter(_is_short, remedies[1:] if detail == "main" else ())]
    others = [advice.id for advice in remedies if advice not in shown]
    named = (Paragraph(f"other remedies: {', '.join(others)}", "faint"),) if others else ()
    return (*(_remedy(advice, brief=index > 0) for index, advice in enumerate(shown)), *named)


def _is_short(advice: Advice) -> bool:
    """Whether the settings of a remedy fit into a brief report."""
    return 0 < sum(bool(line.key) for line in _lines(advice)) <= _MOST_LINES


def _consequences(problem: Problem, detail: CardDetail) -> tuple[Block, ...]:
    """What the cause explains, and how to make sure of it."""
    blocks: list[Block] = []
    if problem.symptoms:
        most = None if detail == "full" else _MOST_SYMPTOMS
        lines = [_symptom_line(symptom, problem) for symptom in problem.symptoms[:most]]
        if len(problem.symptoms) > len(lines):
            lines.append(f"{len(problem.symptoms) - len(lines)} more findings")
        blocks.append(Bullets(tuple(lines), "explains"))
    if problem.confirm and detail != "short":
        blocks.append(Bullets((problem.confirm,), "check"))
    return tuple(blocks)


def _symptom_line(symptom: Symptom, problem: Problem) -> Inline:
    finding = symptom.finding
    if finding.code == problem.cause.code:
        return Span(finding.code, link=anchor_of(finding)), f"earlier, {finding_period(finding)}"
    because = f"{finding.name}: {symptom.because}" if symptom.because else finding.name
    return Span(finding.code, link=anchor_of(finding)), because


def _evidence(evidence: tuple[Evidence, ...], *, with_cause: bool) -> Table:
    columns = (
        Column("evidence", unbroken=True),
        Column("step", numeric=True),
        Column("value", numeric=True),
        Column("baseline", numeric=True),
    )
    has_cause = with_cause and any(each.where for each in evidence)
    rows: list[tuple[Inline, ...]] = [
        (
            code(each.metric),
            str(each.step),
            format_number(each.value),
            format_number(each.baseline) if each.baseline is not None else "",
            *([_sequence(each.where)] if has_cause else []),
        )
        for each in evidence
    ]
    return Table((*columns, Column("sequence")) if has_cause else columns, tuple(rows))


def _sequence(where: str | None) -> Inline:
    return code(plain(where, limit=_MAX_ID_LETTERS)) if where else ""


def first_settings(report: Report) -> tuple[Setting, ...]:
    """The settings to type first: those of the first remedy of the first fault that has any."""
    verdict = report.diagnosis.verdict
    if verdict.kind != "sick":
        return ()
    for advice in _offered(report.diagnosis.problems[0].cause, report)[:1]:
        lines = [line for line in _lines(advice) if line.key]
        return tuple(_setting(line) for line in lines)
    return ()


def _offered(finding: Finding, report: Report) -> list[Advice]:
    """The remedies whose mechanism applies to the run; all of them if none does."""
    remedies = [report.advice[remedy] for remedy in finding.remedies]
    return [advice for advice in remedies if not advice.obstacle] or remedies


def _lines(advice: Advice) -> tuple[SettingLine, ...]:
    is_conditional = advice.spelling and any(line.key for line in advice.if_not_set)
    condition = (SettingLine("", "", "If not set already:"),) if is_conditional else ()
    return (*advice.spelling, *condition, *advice.if_not_set)


def _remedy(advice: Advice, *, brief: bool = False) -> Remedy:
    settings, note = _lines(advice) or advice.already_set, _note(advice)
    if brief:
        settings, note = tuple(line for line in _lines(advice) if line.key), ""
    return Remedy(
        title=advice.title,
        settings=tuple(_setting(setting) for setting in settings),
        id=advice.id,
        applicability=advice.applicability,
        note=note,
    )


def _note(advice: Advice) -> str:
    """What the settings depend on, or why there are none."""
    if advice.obstacle:
        return f"Does not apply: {advice.obstacle}."
    if not advice.spelling and any(setting.key for setting in advice.if_not_set):
        return "The run's config was not found. If not set already:"
    if _lines(advice):
        return ""
    if advice.already_set:
        return "Already set:"
    if advice.config_missing:
        return "The run's config was not found. Pass it with --run-config FILE."
    return "Already set, or it does not apply to this run's settings."


def _setting(setting: SettingLine) -> Setting:
    return Setting(setting.commented_line, copyable=bool(setting.key))
