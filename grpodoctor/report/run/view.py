"""The report of a run, as a view: brief by default, everything for HTML and `--verbose`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from grpodoctor.monitor.diagnosis.problems import Problem, is_alarm
from grpodoctor.monitor.diagnosis.verdict import Verdict, VerdictKind
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.monitor.sample_responses import SampleResponse
from grpodoctor.report.run.coverage_view import brief_coverage, full_coverage
from grpodoctor.report.run.finding_view import (
    BREVITIES,
    Brevity,
    CardDetail,
    anchor_of,
    crash_blocks,
    first_steps,
    problem_card,
    symptom_card,
)
from grpodoctor.report.run.phrases import (
    CHARTS_LEGEND,
    damage_line,
    defect_line,
    earlier_run_lines,
    facts_line,
    finding_period,
    finding_periods,
    last_seen,
)
from grpodoctor.report.run.vitals_view import brief_vitals, full_vitals
from grpodoctor.report.view import (
    Block,
    Bullets,
    Chart,
    Charts,
    Codes,
    Column,
    Detail,
    Inline,
    Paragraph,
    Response,
    Section,
    Span,
    Table,
    Tone,
    View,
    code,
)
from grpodoctor.rules.base import Finding
from grpodoctor.runs.reading.read_notes import is_important
from grpodoctor.support.safe_text import plain

if TYPE_CHECKING:
    from grpodoctor.report.run.panels import Panel

VERDICT_TONES: dict[VerdictKind, Tone] = {
    "healthy": "good",
    "flat": "info",
    "solved": "good",
    "sick": "critical",
    "too short": "warning",
    "not examined": "warning",
}
"""Colors of the verdicts."""

_ZOOM_HELP = "Drag over a chart to zoom all charts; double-click to reset."
_MAX_ID_LETTERS = 80
_MAX_PROMPT_LETTERS, _MAX_RESPONSE_LETTERS = 2000, 6000


def view_of(data: ReportData, *, verbose: bool = False, level: int = 0) -> View:
    """Translate the report of a run.

    Args:
        data: the report.
        verbose: whether text and Markdown show everything, as HTML always does.
        level: how brief they are otherwise: an index of `BREVITIES`.
    """
    report = data.report
    verdict = report.diagnosis.verdict
    tone = VERDICT_TONES[verdict.kind]
    is_shortenable = not verbose and level + 1 < len(BREVITIES)
    return View(
        product="grpodoctor",
        page_title=f"Training health of {report.run.path}",
        heading=report.run.path,
        facts=facts_line(report),
        diagnosis=(Span(verdict.kind, "badge", tone), verdict.text),
        actions=first_steps(report),
        warnings=(
            *((report.crash.line,) if report.crash else ()),
            *((damage_line(report),) if report.damage_total else ()),
            *map(defect_line, report.defects),
            *filter(is_important, report.notes),
            *earlier_run_lines(report),
        ),
        blocks=tuple(_blocks(data, None if verbose else BREVITIES[level])),
        json=report.to_json,
        shorter=lambda: view_of(data, level=level + 1) if is_shortenable else None,
    )


def _blocks(data: ReportData, brevity: Brevity | None) -> Iterator[Block]:
    """The blocks of a report; in full if `brevity` is None."""
    report, verbose = data.report, brevity is None
    brief = brevity or BREVITIES[0]
    if data.comparison:
        yield Detail(lambda: _comparison(data))
    yield from crash_blocks(report)
    yield Detail(lambda: _leading_chart(data))
    yield Detail(lambda: _overview(report))
    yield from _findings(report, brief, verbose=verbose)
    yield Detail(lambda: _charts(data))
    if data.vitals:
        full = full_vitals(data.vitals)
        yield _either(lambda: (full,), brief_vitals(data.vitals, brief.vitals), verbose=verbose)
    if report.treatments:
        yield Section("Treatments", (_treatments(report),))
    yield Detail(lambda: _responses(data))
    yield _either(lambda: full_coverage(report), brief_coverage(report), verbose=verbose)
    yield _either(lambda: _about_the_log(report), (), verbose=verbose)
    if not verbose:
        yield Detail(lambda: (), (Paragraph(_where_to_read_more(report), "faint"),))


def _either(
    full: Callable[[], Iterable[Block]], brief: Iterable[Block], *, verbose: bool
) -> Detail:
    """The full form for HTML and for verbose text, the brief form otherwise."""
    return Detail(full, tuple(full()) if verbose else tuple(brief))


def _comparison(data: ReportData) -> Iterator[Block]:
    if data.comparison:
        yield Paragraph(data.comparison.summary, "lead")


def _overview(report: Report) -> Iterator[Block]:
    if len(report.findings) > 1:
        yield Bullets(tuple(_overview_line(finding) for finding in report.findings), "overview")


def _overview_line(finding: Finding) -> Inline:
    return (
        Span(finding.severity, "badge", finding.severity),
        Span(f"{finding.code} {finding.name}", link=anchor_of(finding)),
        Span(finding_period(finding), "faint"),
    )


def _findings(report: Report, brevity: Brevity, *, verbose: bool) -> Iterator[Block]:
    """A card for each problem; in brief reports only for the first faults, active ones if any."""
    problems = report.diagnosis.problems
    alarms = [problem for problem in problems if any(map(is_alarm, problem.findings))]
    faults = [problem for problem in alarms if problem.active] or alarms
    shown = problems if verbose else tuple(faults[: brevity.cards])
    for problem in problems:
        full = _cards(problem, report)
        if verbose:
            yield from full
        else:
            is_main = problem.active and problem in faults[:1]
            detail: CardDetail = "main" if is_main else "short"
            brief = (problem_card(problem, report, detail, brevity),) if problem in shown else ()
            yield Detail(lambda full=full: full, brief)  # type: ignore[misc]
    rest = [each for each in problems if each not in shown and _is_news(each)]
    rest = [each for each in rest if not _is_in_verdict(each, report.diagnosis.verdict)]
    if rest:
        yield Detail(lambda: (), _other_findings(rest, report, brevity, after_cards=bool(shown)))


def _is_news(problem: Problem) -> bool:
    """Whether a problem belongs into a brief report: a note that is resolved does not."""
    return problem.active or problem.severity != "info"


def _is_in_verdict(problem: Problem, verdict: Verdict) -> bool:
    """Whether the verdict of flat has stated the note, so that a brief report leaves it out."""
    return verdict.kind == "flat" and problem.cause.code == verdict.code and not problem.symptoms


def _cards(problem: Problem, report: Report) -> tuple[Block, ...]:
    symptoms = (symptom_card(symptom, problem, report) for symptom in problem.symptoms)
    return (problem_card(problem, report), *symptoms)


def _other_findings(
    problems: list[Problem], report: Report, brevity: Brevity, *, after_cards: bool
) -> tuple[Block, ...]:
    lines = [_problem_line(problem.cause, report, brevity) for problem in problems[: brevity.lines]]
    if len(problems) > len(lines):
        lines.append(f"and {len(problems) - len(lines)} more")
    title = "Other findings" if after_cards else "Findings"
    is_complete = brevity.summaries and len(problems) <= brevity.lines
    title = title if is_complete else f"{title} (--verbose explains them)"
    return (Section(title, (Bullets(tuple(lines)),)),)


def _problem_line(cause: Finding, report: Report, brevity: Brevity) -> Inline:
    badge = Span(cause.severity, "badge", cause.severity)
    name, period = f"{cause.code} {cause.name},", finding_periods(cause, report.findings)
    period += last_seen(cause, report.run)
    if not brevity.summaries:
        return badge, name, period
    is_stated = cause.summary.rstrip(". ") in report.diagnosis.verdict.text
    return badge, name, f"{period}:", "see the verdict." if is_stated else cause.summary


def _leading_chart(data: ReportData) -> Iterator[Block]:
    """The most important chart, which is that of the reward if it was logged."""
    for chart in _drawn(data)[:1]:
        yield Charts((chart(),))
        yield Paragraph(CHARTS_LEGEND, "faint")


def _charts(data: ReportData) -> Iterator[Block]:
    """The other charts."""
    charts = tuple(chart() for chart in _drawn(data)[1:])
    if charts:
        yield Section(
            "Charts", (Paragraph(f"{CHARTS_LEGEND} {_ZOOM_HELP}", "faint"), Charts(charts))
        )


def _drawn(data: ReportData) -> list[Callable[[], Chart]]:
    """The charts of a run; each is drawn when it is called."""
    from grpodoctor.report.run.charts import panel_figure
    from grpodoctor.report.run.panels import panels

    def drawn(panel: Panel) -> Chart:
        return Chart(panel.title, panel_figure(panel), panel.description)

    return [partial(drawn, panel) for panel in panels(data)]


def _treatments(report: Report) -> Table:
    columns = (Column("step", numeric=True), Column("remedy"), Column("action"), Column("change"))
    rows = tuple(
        (str(treatment.step), code(treatment.remedy), treatment.kind, treatment.detail)
        for treatment in report.treatments
    )
    return Table(columns, rows)


def _responses(data: ReportData) -> Iterator[Block]:
    if responses := data.sample_responses():
        yield Section("Responses", tuple(_response(response) for response in responses))


def _response(response: SampleResponse) -> Response:
    return Response(
        title=plain(response.sequence_id, limit=_MAX_ID_LETTERS),
        facts=f"step {response.step} · {response.facts}",
        reason=response.reason,
        prompt=plain(response.prompt, limit=_MAX_PROMPT_LETTERS, lines=True),
        text=plain(response.text, limit=_MAX_RESPONSE_LETTERS, lines=True),
    )


def _about_the_log(report: Report) -> Iterator[Block]:
    if report.notes:
        yield Section("How the log was read", (Bullets(report.notes),))
    if report.unmapped:
        yield Section("Unrecognized keys", (Codes(report.unmapped),))


def _where_to_read_more(report: Report) -> str:
    verdict = report.diagnosis.verdict
    codes = [problem.cause.code for problem in report.diagnosis.problems if _is_news(problem)]
    page = f"More: grpodoctor rule {codes[0]}; " if codes else "More: "
    if codes and verdict.kind == "flat" and codes[0] == verdict.code:
        page = f"More: grpodoctor rule {codes[0]} explains the verdict; "
    return f"{page}the option --verbose shows all rules and metrics."
