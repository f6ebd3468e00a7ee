"""The report as one HTML file that opens offline: own style, plotly.js inside, nothing loaded."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.monitor.advice import Advice
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.monitor.vitals import Vital, format_number
from grpodoctor.report.html_page import Pictures, document, table
from grpodoctor.report.run.charts import figures
from grpodoctor.report.run.phrases import (
    NOTHING_TO_CHANGE,
    TREND_ARROWS,
    damage_line,
    facts_line,
    lasting,
    setting_line,
    tally,
)
from grpodoctor.rules.base import Evidence, Finding
from grpodoctor.support.safe_text import html as safe


def render(dossier: ReportData) -> str:
    """The report as an HTML document."""
    pictures, scripts = _pictures(dossier)
    report = dossier.report
    body = "".join(
        (
            _header(report),
            f"<p class='sentence'>{safe(dossier.comparison.summary)}</p>"
            if dossier.comparison
            else "",
            _overview(report),
            pictures,
            _findings(report),
            _vitals(dossier.vitals),
            _treatments(report),
            _samples(dossier),
            _unseen(report),
        )
    )
    return document(f"Training health of {report.run.path}", body, scripts)


def _pictures(dossier: ReportData) -> tuple[str, list[str]]:
    other = dossier.comparison
    beside = (other.label, other.series) if other else None
    pictures = Pictures()
    places = pictures.place(figures(dossier.report, dossier.series, beside))
    section = f"<section><h2>Course</h2>{places}</section>" if places else ""
    return section, pictures.scripts()


def _header(report: Report) -> str:
    damage = f'<p class="damage">{safe(damage_line(report))}</p>' if report.damage_total else ""
    return (
        f"<header><p class='eyebrow'>grpodoctor</p><h1>{safe(report.run.path)}</h1>"
        f"<p class='facts'>{safe(facts_line(report.run))}</p>"
        f"<p class='tally'>{safe(tally(report))}</p>{damage}</header>"
    )


def _overview(report: Report) -> str:
    if not report.findings:
        return "<section><p>Nothing was found.</p></section>"
    lines = "".join(
        f'<li class="{finding.severity}"><span class="badge">{finding.severity}</span> '
        f'<a href="#finding-{index}"><code>{safe(finding.code)}</code> {safe(finding.name)}</a> '
        f"<small>{lasting(finding)}</small></li>"
        for index, finding in enumerate(report.findings)
    )
    return f'<ul class="overview">{lines}</ul>'


def _findings(report: Report) -> str:
    cards = "".join(
        _finding(index, finding, report.advice) for index, finding in enumerate(report.findings)
    )
    return f"<section><h2>Findings</h2>{cards}</section>" if cards else ""


def _finding(index: int, finding: Finding, resolved: Mapping[str, Advice]) -> str:
    state = "active" if finding.active else "resolved"
    references = "".join(f"<li>{safe(each)}</li>" for each in finding.references)
    advice = "".join(_advice(resolved[remedy]) for remedy in finding.remedies)
    return (
        f'<article class="finding {finding.severity} {state}" id="finding-{index}">'
        f'<h3><span class="badge">{finding.severity}</span> <code>{safe(finding.code)}</code> '
        f"{safe(finding.name)} <small>{lasting(finding)}</small></h3>"
        f'<div class="halves"><div><p>{safe(finding.summary)}</p>{_evidence(finding.evidence)}'
        + (f'<ul class="references">{references}</ul>' if references else "")
        + f"</div><div>{advice}</div></div></article>"
    )


def _evidence(evidence: tuple[Evidence, ...]) -> str:
    if not evidence:
        return ""
    rows = [
        [
            f"<code>{safe(each.metric)}</code>" + _cause(each),
            str(each.step),
            format_number(each.value),
            format_number(each.baseline) if each.baseline is not None else "",
        ]
        for each in evidence
    ]
    return table(["evidence", "step", "value", "against"], rows, frozenset({1, 2, 3}))


def _cause(evidence: Evidence) -> str:
    return f"<br><small>in {safe(evidence.where, limit=80)}</small>" if evidence.where else ""


def _advice(advice: Advice) -> str:
    settings = "\n".join(safe(setting_line(each)) for each in advice.spelling)
    return (
        f'<div class="advice"><p><strong>{safe(advice.id)}</strong> '
        f'<span class="applicability">{safe(advice.applicability)}</span> {safe(advice.title)}</p>'
        + (f"<pre>{settings}</pre>" if settings else f"<p class='facts'>{NOTHING_TO_CHANGE}</p>")
        + "</div>"
    )


def _vitals(vitals: tuple[Vital, ...]) -> str:
    if not vitals:
        return ""
    rows = [
        [
            safe(vital.label),
            f"<code>{safe(vital.metric)}</code>",
            "n/a" if vital.why_not else format_number(vital.now),
            "" if vital.why_not else format_number(vital.start),
            safe(vital.why_not) or TREND_ARROWS[vital.trend],
        ]
        for vital in vitals
    ]
    listed = table(["", "metric", "now", "start", ""], rows, frozenset({2, 3}))
    return f"<section><h2>Vitals</h2>{listed}</section>"


def _treatments(report: Report) -> str:
    if not report.treatments:
        return ""
    rows = [
        [str(each.step), f"<code>{safe(each.remedy)}</code>", safe(each.kind), safe(each.detail)]
        for each in report.treatments
    ]
    listed = table(["step", "remedy", "", ""], rows, frozenset({0}))
    return f"<section><h2>Treatments</h2>{listed}</section>"


def _samples(dossier: ReportData) -> str:
    samples = dossier.sample_responses()
    if not samples:
        return ""
    cards = "".join(
        f'<article class="sample"><h3><code>{safe(sample.sequence_id, limit=80)}</code> '
        f"<small>step {sample.step} · {safe(sample.facts)}</small></h3>"
        f"<p>{safe(sample.reason)}</p>"
        f'<pre class="prompt">{safe(sample.prompt, limit=2000, lines=True)}</pre>'
        f"<pre>{safe(sample.text, limit=6000, lines=True)}</pre></article>"
        for sample in samples
    )
    return f"<section><h2>Responses</h2>{cards}</section>"


def _unseen(report: Report) -> str:
    skipped = [
        [
            f"<code>{safe(each.code)}</code>",
            ", ".join(f"<code>{safe(name)}</code>" for name in each.missing),
            safe(each.how),
        ]
        for each in report.skipped
    ]
    inapplicable = [
        [f"<code>{safe(each.code)}</code>", safe(each.why)] for each in report.not_applicable
    ]
    parts = []
    if skipped:
        listed = table(["rule", "missing", "how to have it recorded"], skipped, frozenset())
        parts.append(f"<section><h2>Skipped, for want of data</h2>{listed}</section>")
    if inapplicable:
        listed = table(["rule", "why"], inapplicable, frozenset())
        parts.append(f"<section><h2>Not applicable</h2>{listed}</section>")
    if report.notes:
        notes = "".join(f"<li>{safe(note)}</li>" for note in report.notes)
        parts.append(f"<section><h2>How the log was read</h2><ul>{notes}</ul></section>")
    for title, codes in (
        ("Looked, and saw nothing", report.quiet),
        ("Keys that no metric is known for", report.unmapped),
    ):
        if codes:
            listed = " ".join(f"<code>{safe(code)}</code>" for code in codes)
            parts.append(f'<section><h2>{title}</h2><p class="codes">{listed}</p></section>')
    return "".join(parts)
