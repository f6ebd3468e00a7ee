"""The report of a run, as a view."""

from __future__ import annotations

from collections.abc import Iterator

from grpodoctor.frameworks.knob_mapping import SettingLine
from grpodoctor.monitor.advice import Advice
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.monitor.sample_responses import SampleResponse
from grpodoctor.monitor.vitals import Vital, format_number
from grpodoctor.report.phrases import count_of
from grpodoctor.report.run.phrases import (
    TREND_ARROWS,
    damage_line,
    diagnosis_line,
    facts_line,
    finding_period,
)
from grpodoctor.report.view import (
    Block,
    Bullets,
    Card,
    Charts,
    Codes,
    Column,
    Detail,
    Inline,
    Paragraph,
    Remedy,
    Response,
    Section,
    Setting,
    Span,
    Table,
    View,
    code,
)
from grpodoctor.rules.base import Evidence, Finding
from grpodoctor.support.safe_text import plain

_MAX_ID_LETTERS = 80
_MAX_PROMPT_LETTERS, _MAX_RESPONSE_LETTERS = 2000, 6000


def view_of(data: ReportData) -> View:
    """Translate the report of a run."""
    report = data.report
    return View(
        product="grpodoctor",
        page_title=f"Training health of {report.run.path}",
        heading=report.run.path,
        facts=facts_line(report.run),
        diagnosis=diagnosis_line(report),
        warnings=(damage_line(report),) if report.damage_total else (),
        blocks=tuple(_blocks(data)),
        json=report.to_json,
    )


def _blocks(data: ReportData) -> Iterator[Block]:
    report = data.report
    if data.comparison:
        yield Detail(lambda: _comparison(data))
    yield Detail(lambda: _overview(report))
    yield from (_finding(index, finding, report) for index, finding in enumerate(report.findings))
    if report.skipped and not report.findings:
        yield Paragraph(_not_proof_of_health(report))
    yield Detail(lambda: _charts(data))
    if data.vitals:
        brief = _vitals(data.vitals, with_metric=False)
        yield Section("Vitals", (Detail(lambda: [_vitals(data.vitals)], (brief,)),))
    if report.treatments:
        yield Section("Treatments", (_treatments(report),))
    yield Detail(lambda: _responses(data))
    yield from _rules_without_findings(report)
    if report.notes:
        yield Section("How the log was read", (Bullets(report.notes),))
    if report.unmapped:
        yield Section("Unrecognized keys", (Codes(report.unmapped),))


def _comparison(data: ReportData) -> Iterator[Block]:
    if data.comparison:
        yield Paragraph(data.comparison.summary, "lead")


def _overview(report: Report) -> Iterator[Block]:
    if len(report.findings) > 1:
        yield Bullets(
            tuple(
                (
                    Span(finding.severity, "badge", finding.severity),
                    Span(f"{finding.code} {finding.name}", link=_anchor(index)),
                    Span(finding_period(finding), "faint"),
                )
                for index, finding in enumerate(report.findings)
            ),
            "overview",
        )


def _not_proof_of_health(report: Report) -> str:
    skipped = len(report.skipped)
    return f"No findings does not mean healthy: {count_of(skipped, 'rule')} could not run."


def _anchor(index: int) -> str:
    return f"finding-{index}"


def _finding(index: int, finding: Finding, report: Report) -> Card:
    body: list[Block] = [Paragraph(finding.summary)]
    if finding.evidence:
        body.append(_evidence(finding.evidence))
    return Card(
        tone=finding.severity,
        badge=finding.severity,
        code=finding.code,
        title=finding.name,
        note=finding_period(finding),
        body=tuple(body),
        advice=tuple(_remedy(report.advice[remedy]) for remedy in finding.remedies),
        references=finding.references,
        anchor=_anchor(index),
        resolved=not finding.active,
    )


def _evidence(evidence: tuple[Evidence, ...]) -> Table:
    columns = (
        Column("evidence", unbroken=True),
        Column("step", numeric=True),
        Column("value", numeric=True),
        Column("baseline", numeric=True),
    )
    has_cause = any(each.where for each in evidence)
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


def _remedy(advice: Advice) -> Remedy:
    settings, note = advice.spelling or advice.if_not_set, ""
    if not advice.spelling and any(setting.key for setting in settings):
        note = "The run's config was not found. If not set already:"
    elif not settings:
        note = (
            "The run's config was not found. To compute the change, pass it with --run-config FILE."
            if advice.config_missing
            else "Already set, or it does not apply to this run's settings."
        )
    return Remedy(
        title=advice.title,
        settings=tuple(_setting(setting) for setting in settings),
        id=advice.id,
        applicability=advice.applicability,
        note=note,
    )


def _setting(setting: SettingLine) -> Setting:
    return Setting(setting.commented_line, copyable=bool(setting.key))


def _charts(data: ReportData) -> Iterator[Block]:
    from grpodoctor.report.run.charts import figures

    drawn = figures(data.report, data.series, data.comparison)
    if drawn:
        yield Section("Charts", (Charts(drawn),))


def _vitals(vitals: tuple[Vital, ...], *, with_metric: bool = True) -> Table:
    columns = (
        Column(""),
        *([Column("metric")] if with_metric else []),
        Column("now", numeric=True),
        Column("start", numeric=True),
        Column(""),
    )
    rows = tuple(
        (vital.label, *([code(vital.metric)] if with_metric else []), *_readings(vital))
        for vital in vitals
    )
    return Table(columns, rows)


def _readings(vital: Vital) -> tuple[Inline, Inline, Inline]:
    if vital.why_not:
        return "n/a", "", Span(vital.why_not, "faint")
    return format_number(vital.now), format_number(vital.start), TREND_ARROWS[vital.trend]


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


def _rules_without_findings(report: Report) -> Iterator[Block]:
    if report.skipped:
        skipped = Detail(lambda: [_skipped(report)], (_brief_skipped(report),))
        yield Section("Skipped: required metrics are not logged", (skipped,))
    if report.not_applicable:
        rows = tuple((code(rule.code), rule.why) for rule in report.not_applicable)
        yield Section("Not applicable", (Table((Column("rule"), Column("reason")), rows),))
    if report.quiet:
        yield Detail(lambda: [Section("Rules that found nothing", (Codes(report.quiet),))])


def _skipped(report: Report) -> Table:
    rows: list[tuple[Inline, ...]] = [
        (code(rule.code), tuple(code(metric) for metric in rule.missing), rule.how)
        for rule in report.skipped
    ]
    return Table((Column("rule"), Column("needs"), Column("how to log it")), tuple(rows))


def _brief_skipped(report: Report) -> Bullets:
    """The skipped rules, those with the same missing metrics on one line."""
    codes_by_need: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for rule in report.skipped:
        codes_by_need.setdefault((rule.missing, rule.how), []).append(rule.code)
    return Bullets(
        tuple(
            (
                f"{', '.join(codes)} {'needs' if len(codes) == 1 else 'need'}",
                *(code(metric) for metric in missing),
                Span(f"· {how}" if how else "", "faint"),
            )
            for (missing, how), codes in codes_by_need.items()
        )
    )
