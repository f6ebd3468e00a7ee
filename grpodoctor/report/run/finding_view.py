"""The findings of a run as cards: each cause with its symptoms, its test and its remedies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grpodoctor.frameworks.written_settings import SettingLine
from grpodoctor.monitor.advice import Advice, usable
from grpodoctor.monitor.diagnosis.first_action import WayBack
from grpodoctor.monitor.diagnosis.problems import Problem, Symptom, is_alarm
from grpodoctor.monitor.report import Report
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.report.run.evidence_table import evidence_blocks
from grpodoctor.report.run.phrases import finding_period, finding_periods
from grpodoctor.report.run.remedies_in_force import remedies_in_force
from grpodoctor.report.view import (
    Block,
    Bullets,
    Card,
    Inline,
    Paragraph,
    Remedy,
    Setting,
    Span,
)
from grpodoctor.rules.base import Finding
from grpodoctor.rules.reward.no_rise import FELL, NoRise

_MAX_ID_LETTERS = 80
_IF_NOT_SET = "If not set already:"
_WHERE_UNKNOWN = {
    True: "The run's config does not contain this setting.",
    False: "The run's config was not found.",
}
"""Why a setting is unknown, by whether the config was found."""
_MOST_NAMES = 3
"""Symptoms with the same reason whose names are shown; the others have their codes."""
_RECHECK = "recheck-reward"
"""The remedy of rules that question the reward itself."""
_MOST_LINES = 3
"""Settings of a further remedy in a brief report; a remedy with more is named only."""

CardDetail = Literal["full", "main", "short"]
"""`full`: everything; `main`: the first problem of a brief report; `short`: the following ones."""


@dataclass(frozen=True, slots=True)
class Brevity:
    """How much a brief report shows."""

    cards: int = 2
    """Problems with a card; the others get a line."""
    lines: int = 5
    """Problems with a line; the others are counted."""
    summaries: bool = True
    """Whether a problem's line contains its summary."""
    symptoms: int = 4
    evidence: int = 3
    further_settings: bool = True
    """Whether the settings of further remedies are shown. The first remedy's are always shown."""
    instructions: tuple[CardDetail, ...] = ("main", "short")
    """The cards whose first remedy has its instructions."""
    check: bool = True
    """Whether to say how to confirm the cause."""
    vitals: int = 6


BREVITIES = (
    Brevity(),
    Brevity(summaries=False, symptoms=2, further_settings=False, instructions=("main",)),
    Brevity(summaries=False, symptoms=2, further_settings=False, instructions=()),
    Brevity(
        summaries=False,
        symptoms=1,
        evidence=2,
        further_settings=False,
        instructions=(),
        vitals=4,
    ),
    Brevity(cards=1, lines=8, summaries=False, symptoms=2),
    Brevity(
        cards=1,
        lines=6,
        summaries=False,
        symptoms=1,
        evidence=2,
        further_settings=False,
        vitals=4,
    ),
    Brevity(
        cards=1,
        lines=5,
        summaries=False,
        symptoms=1,
        evidence=2,
        further_settings=False,
        instructions=(),
        check=False,
        vitals=4,
    ),
    Brevity(
        cards=1,
        lines=4,
        summaries=False,
        symptoms=1,
        evidence=1,
        further_settings=False,
        instructions=(),
        check=False,
        vitals=0,
    ),
)
"""From the usual brief report to the shortest, for terminals on which the report does not fit."""


ANCHOR = "finding-"
"""Begins the place of a finding on an HTML page."""


def finding_key(finding: Finding) -> str:
    """The finding in an address: its code and its onset."""
    return f"{finding.code}-{finding.onset_step}"


def anchor_of(finding: Finding) -> str:
    """The place of a finding on an HTML page."""
    return ANCHOR + finding_key(finding)


def problem_card(
    problem: Problem,
    report: Report,
    detail: CardDetail = "full",
    brevity: Brevity = BREVITIES[0],
) -> Card:
    """The card of a cause, with the symptoms that it explains.

    Args:
        problem: the cause and its symptoms.
        report: for the remedies.
        detail: how much to show.
        brevity: how much to show unless `detail` is `full`.
    """
    after = _consequences(problem, report, detail, brevity)
    card = _card(problem.cause, report, after=after, detail=detail, brevity=brevity)
    if detail != "full" and not problem.active:  # there is nothing to do
        card = replace(card, advice=())
    is_present = problem.present is problem.cause
    is_in_verdict = is_present and problem.cause.code == report.diagnosis.verdict.code
    # The verdict, a few lines above, has the summary already.
    return replace(card, body=card.body[1:]) if detail == "main" and is_in_verdict else card


def symptom_card(symptom: Symptom, problem: Problem, report: Report) -> Card:
    """The card of a finding that another one explains.

    Its note has all steps of its rule, so an earlier or later period of the cause names no cause.
    """
    if symptom.finding.code == problem.cause.code:
        return _card(symptom.finding, report, after=())
    because = f": {symptom.because}" if symptom.because else ""
    cause = Paragraph(
        (f"explained by {problem.cause.code} {problem.cause.name}{because}",), "faint"
    )
    return _card(symptom.finding, report, after=(cause,))


def _card(
    finding: Finding,
    report: Report,
    *,
    after: tuple[Block, ...],
    detail: CardDetail = "full",
    brevity: Brevity = BREVITIES[0],
) -> Card:
    evidence = finding.evidence[: {"full": None, "main": brevity.evidence, "short": 0}[detail]]
    shown = evidence_blocks(finding, evidence, report.run.last_step, is_full=detail == "full")
    return Card(
        tone=finding.severity,
        badge=finding.severity,
        code=finding.code,
        title=finding.name,
        note=finding_periods(finding, report.findings),
        body=(Paragraph(finding.summary), *shown, *after),
        advice=_advice(finding, report, detail, brevity),
        references=finding.references if detail == "full" else (),
        anchor=anchor_of(finding),
        resolved=not finding.active,
    )


def _advice(
    finding: Finding, report: Report, detail: CardDetail, brevity: Brevity
) -> tuple[Block, ...]:
    """The remedies: all in full, or the first in full and the settings of the others if short."""
    ids, remedies = finding.remedies, usable(finding.remedies, report.advice)
    way_back = report.diagnosis.way_back
    if detail == "full":
        in_force = remedies_in_force(ids, report.advice, remedies)
        return (*(_remedy(advice, finding, way_back) for advice in remedies), *in_force)
    if any(not each.is_in_force for each in remedies):
        remedies = [each for each in remedies if not each.is_in_force]
    has_further = detail == "main" and brevity.further_settings
    further = [advice for advice in remedies[1:] if has_further and _is_short(advice)]
    named = [_name(advice) for advice in remedies[1:] if advice not in further]
    others = (Paragraph(f"other remedies: {', '.join(named)}", "faint"),) if named else ()
    first = [
        _brief(each, _remedy(each, finding, way_back), report, detail, brevity)
        for each in remedies[:1]
    ]
    in_force = remedies_in_force(ids, report.advice, remedies) if detail == "main" else ()
    return (*first, *map(_settings_alone, further), *others, *in_force)


def _name(advice: Advice) -> str:
    """The id of a remedy, with its condition if it is unknown."""
    return f"{advice.id} {advice.condition}" if advice.is_conditional else advice.id


def _brief(
    advice: Advice, remedy: Remedy, report: Report, detail: CardDetail, brevity: Brevity
) -> Remedy:
    """The first remedy of a card, without its explanation if the report is to be short.

    Its settings are never left out: it points to those that follow the verdict.
    """
    settings = remedy.settings
    if detail not in brevity.instructions:
        settings = tuple(each for each in settings if not each.explains)
    above = [each for each in settings if each in first_steps(report)]
    if not above:
        return replace(remedy, settings=settings)
    left = (each for each in settings if each not in above)
    what = "setting" if len(above) == 1 else "settings"
    if Setting(advice.command) in above:
        what = "command"
    return replace(remedy, settings=(*left, Setting(f"the {what} at the top", copyable=False)))


def _is_short(advice: Advice) -> bool:
    """Whether the settings of a remedy fit into a brief report."""
    return 0 < len(advice.settings) <= _MOST_LINES


def _consequences(
    problem: Problem, report: Report, detail: CardDetail, brevity: Brevity
) -> tuple[Block, ...]:
    """What the cause explains, and how to make sure of it."""
    blocks: list[Block] = []
    is_full = detail == "full"
    if is_full:
        others = [each for each in problem.symptoms if each.finding.code != problem.cause.code]
        lines = [_symptom_line(symptom, others) for symptom in others]
    else:
        lines = _brief_symptoms(problem, brevity.symptoms)
    if lines:
        blocks.append(Bullets(tuple(lines), "explains"))
    doubts = () if is_full else _reward_doubts(problem, report)
    is_checked = is_full or (detail == "main" and brevity.check)
    checks = (problem.confirm,) if problem.confirm and is_checked else ()
    if checks or doubts:
        blocks.append(Bullets((*checks, *doubts), "check"))
    return tuple(blocks)


def _brief_symptoms(problem: Problem, most: int) -> list[Inline]:
    """The symptoms, those with the same reason on one line; the names alone of those that follow.

    Args:
        problem: the cause and its symptoms.
        most: number of lines.
    """
    by_reason: dict[str, list[Symptom]] = {}
    for symptom in _other_rules(problem):
        by_reason.setdefault(symptom.because, []).append(symptom)
    groups = list(by_reason.items())
    lines: list[Inline] = [
        _joined(symptoms, f": {because}" if because else "") for because, symptoms in groups[:most]
    ]
    others = [symptom for _, symptoms in groups[most:] for symptom in symptoms]
    return [*lines, ("also", *_joined(others, " (--verbose says why)"))] if others else lines


def _joined(symptoms: Sequence[Symptom], end: str) -> tuple[Span, ...]:
    """Findings with links to their cards; the first ones with their names."""
    parts: list[Span] = []
    for place, symptom in enumerate(symptoms):
        finding, comma = symptom.finding, "," if place < len(symptoms) - 1 else end
        link = anchor_of(finding)
        if place < _MOST_NAMES:
            parts += [Span(finding.code, link=link), Span(f"{_name_of(finding)}{comma}")]
        else:
            parts.append(Span(f"{finding.code}{comma}", link=link))
    return tuple(parts)


def _reward_doubts(problem: Problem, report: Report) -> tuple[Inline, ...]:
    """The first symptom that asks for a check of the reward, unless the cause asks for it first."""
    if _questions_reward(problem.cause, report):
        return ()
    doubting = (
        each.finding for each in problem.symptoms if _questions_reward(each.finding, report)
    )
    finding = next((each for each in doubting if each.active and is_alarm(each)), None)
    if finding is None:
        return ()
    summary = f"{finding.summary[:1].lower()}{finding.summary[1:]}"
    link = Span(finding.code, link=anchor_of(finding))
    return ((link, f"questions the reward as well: {summary}"),)


def _questions_reward(finding: Finding, report: Report) -> bool:
    """Whether the first remedy of a finding is a check of the reward."""
    remedies = usable(finding.remedies, report.advice)
    return bool(remedies) and remedies[0].id == _RECHECK


def _other_rules(problem: Problem) -> Sequence[Symptom]:
    """The first symptom of each rule, without those of the cause's rule, whose steps are named."""
    first: dict[str, Symptom] = {}
    for symptom in problem.symptoms:
        first.setdefault(symptom.finding.code, symptom)
    return tuple(each for code, each in first.items() if code != problem.cause.code)


def _name_of(symptom: Finding) -> str:
    """The name of a symptom; a fall of the reward would be hidden behind that of `no-rise`."""
    noun, is_fall, _ = symptom.summary.partition(FELL)
    if symptom.code != NoRise.code or not is_fall:
        return symptom.name
    return f"{symptom.name} ({noun.strip().lower()} fell)"


def _symptom_line(symptom: Symptom, symptoms: Sequence[Symptom]) -> Inline:
    """A symptom and why it follows; with its period if its rule fired more than once."""
    finding = symptom.finding
    fired = sum(each.finding.code == finding.code for each in symptoms)
    period = f", {finding_period(finding)}" if fired > 1 else ""
    because = f": {symptom.because}" if symptom.because else ""
    return Span(finding.code, link=anchor_of(finding)), f"{_name_of(finding)}{period}{because}"


def first_steps(report: Report) -> tuple[Setting, ...]:
    """What to paste or type first, for the main fault of a sick run or the note on a flat one.

    The settings of the first remedy; otherwise the command that makes its check, the settings of
    the next remedy that has any, or an instruction. For a solved run whose reward is in doubt, the
    command that tests the reward.
    """
    verdict = report.diagnosis.verdict
    if verdict.kind not in {"sick", "flat", "solved"}:
        return ()
    causes = [each.cause for each in report.diagnosis.problems]
    candidates = report.findings if verdict.kind == "flat" else causes
    cause = next((each for each in candidates if each.code == verdict.code), None)
    if cause is None:
        return ()
    remedies = usable(cause.remedies, report.advice)
    if not remedies or not remedies[0].is_open:
        return ()
    first, *others = remedies
    if verdict.kind == "solved":
        return (Setting(first.command),) if first.id == "recheck-reward" else ()
    if first.settings:
        return _settings_of(first)
    if first.command:
        return (Setting(first.command),)
    if then := next((each for each in others if each.is_exact), None):
        title = f"Then {then.id}: {then.conditional_title}."
        return (Setting(title, copyable=False), *_settings_of(then))
    lines = first.if_not_set or first.spelling
    instructions = [line.note for line in lines] or [_note(first)]
    instruction = report.diagnosis.way_back.named_in(instructions[0], cause)
    return (Setting(instruction.split(". ")[0].rstrip(".") + ".", False),)


def crash_blocks(report: Report) -> tuple[Block, ...]:
    """The settings that prevent the error with which the log ends; nothing without such settings.

    The line of the error stands above, with the warnings of the report.
    """
    advice = report.crash.remedy if report.crash else None
    if advice is None:
        return ()
    how = remedy_of(advice.id).how  # for the page: the settings are what to do
    lines = [line for line in advice.spelling if line.key or line.note != how]
    settings = tuple(map(_setting, lines or advice.spelling))
    return (Remedy(advice.title, settings, advice.id, advice.applicability),)


def _settings_of(advice: Advice) -> tuple[Setting, ...]:
    return tuple(_setting(line) for line in advice.settings)


def _lines(advice: Advice) -> tuple[SettingLine, ...]:
    is_conditional = advice.spelling and any(line.key for line in advice.if_not_set)
    condition = (SettingLine("", "", _IF_NOT_SET),) if is_conditional else ()
    return (*advice.spelling, *condition, *advice.if_not_set)


def _remedy(advice: Advice, finding: Finding, way_back: WayBack) -> Remedy:
    lines = _lines(advice) or advice.already_set
    commands = (Setting(advice.command),) if advice.command else ()
    how = remedy_of(advice.id).how
    settings = [
        replace(
            _setting(replace(line, note=way_back.named_in(line.note, finding))),
            explains=bool(how) and line.note == how,
        )
        for line in lines
    ]
    return Remedy(
        title=_title(advice),
        settings=(*settings, *commands),
        id=advice.id,
        applicability=advice.applicability,
        note=_note(advice),
    )


def _settings_alone(advice: Advice) -> Remedy:
    """A further remedy of a brief report: its settings without instructions."""
    return Remedy(_title(advice), _settings_of(advice), advice.id, advice.applicability)


def _title(advice: Advice) -> str:
    """The title, with the measured value that the remedy acts on, or the condition."""
    if advice.is_conditional or not advice.condition:
        return advice.conditional_title
    if advice.title.endswith(")"):  # a caution on the remedy
        return f"{advice.title[:-1]}; {advice.condition})"
    return f"{advice.title} ({advice.condition})"


def _note(advice: Advice) -> str:
    """What the settings depend on, or why there are none."""
    if advice.obstacle:
        return f"Does not apply: {advice.obstacle}."
    if not advice.spelling and any(setting.key for setting in advice.if_not_set):
        return f"{_WHERE_UNKNOWN[advice.has_config]} {_IF_NOT_SET}"
    if _lines(advice):
        return ""
    if advice.already_set:
        return "Already set:"
    if advice.config_missing:
        how = "" if advice.has_config else " Pass it with --run-config FILE."
        return f"{_WHERE_UNKNOWN[advice.has_config]}{how}"
    return "Already set, or it does not apply to this run's settings."


def _setting(setting: SettingLine) -> Setting:
    note = setting.note if setting.key else ""
    return Setting(setting.line, copyable=bool(setting.key), note=note)
