"""Wording of the reports about a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grpodoctor.monitor.diagnosis.problems import SETTINGS
from grpodoctor.monitor.diagnosis.verdict import VERDICT_ORDER
from grpodoctor.monitor.report import Report, RunFacts
from grpodoctor.monitor.vitals import Trend
from grpodoctor.rules.base import Finding
from grpodoctor.rules.diagnosis import Defect
from grpodoctor.support.numbers import count_of
from grpodoctor.support.safe_text import plain

CHARTS_LEGEND = (
    "Shaded: the starting range of the first curve. Dotted lines and symbols: onsets of findings. "
    "Green lines: treatments."
)

_MOST_SPANS = 4
"""Periods of a rule that are named; more are counted."""

_RECENT_ROWS = 10
"""Rows of a log within which a finding was seen just now."""

_MOST_EARLIER_RUNS = 3
"""Earlier runs of a log whose verdicts are shown; more are counted."""

TREND_ARROWS: dict[Trend, str] = {"up": "↑", "down": "↓", "steady": "→", "unknown": ""}


def finding_period(finding: Finding) -> str:
    """The steps at which a finding was active."""
    if finding.active:
        return f"since step {finding.onset_step}"
    if finding.onset_step == finding.last_step:
        return f"step {finding.onset_step}, resolved"
    return f"steps {finding.onset_step} to {finding.last_step}, resolved"


def last_seen(finding: Finding, run: RunFacts) -> str:
    """When an active finding was seen last, if that is not recent; it may be over soon.

    Args:
        finding: the finding.
        run: its run, whose latest ten rows are recent.
    """
    if not finding.active or run.first_step is None or run.last_step is None:
        return ""
    if finding.code.startswith(SETTINGS):  # a setting is examined once and stays
        return ""
    stride = (run.last_step - run.first_step) / max(run.steps - 1, 1)
    is_recent = run.last_step - finding.last_step <= _RECENT_ROWS * stride
    return "" if is_recent else f", last seen at step {finding.last_step}"


def finding_periods(finding: Finding, findings: Iterable[Finding]) -> str:
    """The steps of a finding, and those at which the same rule fired before and after.

    Args:
        finding: the finding.
        findings: all findings of the run.
    """
    same = sorted(
        (each for each in findings if each.code == finding.code), key=lambda each: each.onset_step
    )
    parts = [finding_period(finding)]
    for when, others in (
        ("earlier", [each for each in same if each.onset_step < finding.onset_step]),
        ("again", [each for each in same if each.onset_step > finding.onset_step]),
    ):
        parts += [f"{when} {_spans(others)}"] if others else []
    return "; ".join(parts)


def _spans(findings: Sequence[Finding]) -> str:
    """Several periods by step, such as `steps 1 to 8, 21 and since step 71`."""
    shown = findings[:_MOST_SPANS]
    ended = [each for each in shown if not each.active]
    spans = [
        str(each.onset_step)
        if each.onset_step == each.last_step
        else f"{each.onset_step} to {each.last_step}"
        for each in ended
    ]
    is_one_step = len(ended) == 1 and ended[0].onset_step == ended[0].last_step
    parts = [f"{'step' if is_one_step else 'steps'} {spans[0]}", *spans[1:]] if spans else []
    parts += [finding_period(each) for each in shown if each.active]
    if len(findings) > len(shown):
        parts.append(f"{len(findings) - len(shown)} more")
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def facts_line(report: Report) -> str:
    """The identity of a run, and how many rules ran, on one line."""
    coverage = report.diagnosis.coverage
    ran = f" · {coverage.ran} of {count_of(coverage.rules, 'rule')} ran" if coverage.rules else ""
    return run_line(report.run) + ran


def run_line(run: RunFacts) -> str:
    """The identity of a run, on one line."""
    parts = ["unknown framework" if run.framework == "unknown" else run.framework]
    if run.model:
        parts.append(run.model)
    if run.seed is not None:
        parts.append(f"seed {run.seed}")
    if run.first_step is None:
        return " · ".join([*parts, "no step was examined"])
    missing = f", {run.missing_steps} missing" if run.missing_steps else ""
    steps = f"steps {run.first_step} to {run.last_step} ({run.steps} read{missing})"
    return " · ".join([*parts, steps])


def damage_line(report: Report) -> str:
    """How many lines and files could not be read, and the first of them."""
    first = report.damage[0]
    whole = sum(not each.line for each in report.damage)
    counts = [(report.damage_total - whole, "damaged line"), (whole, "unreadable file")]
    skipped = " and ".join(count_of(count, noun) for count, noun in counts if count)
    place = f"{first.file} line {first.line}" if first.line else f"all of {first.file}"
    return f"{skipped} skipped; the first: {place}: {first.why}"


def defect_line(defect: Defect) -> str:
    """Reports that a rule raised an exception; this is no statement about the run."""
    times = "once" if defect.count == 1 else f"at {defect.count} steps"
    return (
        f"rule {defect.code} failed {times}, first at step {defect.step}: {defect.error}; "
        "the other rules are complete; please report this defect of grpodoctor"
    )


def earlier_run_lines(report: Report) -> list[str]:
    """The verdicts on the runs that the same log holds before this one: the worst ones."""
    runs = report.earlier_runs
    worst = sorted(runs, key=lambda run: VERDICT_ORDER.index(run.verdict.kind))[:_MOST_EARLIER_RUNS]
    lines = [
        " ".join(filter(None, (run.line, run.limit_remark(report.lengths))))
        for run in runs
        if run in worst
    ]
    left = len(runs) - len(lines)
    return [*lines, f"and {count_of(left, 'earlier run')} more"] if left else lines


def diagnosis_line(report: Report) -> str:
    """The verdict on one line."""
    return report.diagnosis.verdict.line


def news_line(news: Mapping[str, Any]) -> str:
    """One event of a live run (see `Session.news`) on one line, safe to print."""
    kind = plain(str(news["kind"]))
    if kind.startswith("finding-"):
        finding = news["finding"]
        name = f"{finding['severity']} {finding['code']} {finding['name']}"
        change = kind.removeprefix("finding-")
        if cause := news.get("cause"):
            change += f", a symptom of {cause}"
        text = f"step {news['step']}: {name} {change}: {finding['summary']}"
    elif kind == "restarted":
        text = "a new run started in this directory"
    elif kind == "removed":
        text = "the run was removed; waiting for a new run at this path"
    else:
        remedy, reason = news.get("remedy", ""), news.get("reason") or news.get("verdict") or ""
        text = f"step {news['step']}: {kind} {remedy}" + (f": {reason}" if reason else "")
    return plain(text, limit=400)


def summary_lines(report: Report) -> list[str]:
    """The verdict on a run, its identity, findings and treatments, one line each, safe to print.

    A rule that fired several times has one line with all its steps.
    """
    first = {finding.code: finding for finding in reversed(report.findings)}
    findings = [
        f"{finding.severity} {finding.code} {finding.name} "
        f"({finding_periods(finding, report.findings)}): {finding.summary}"
        for finding in report.findings
        if finding is first[finding.code]
    ]
    treatments = [
        f"step {treatment.step}: {treatment.remedy} {treatment.kind}; {treatment.detail}"
        for treatment in report.treatments
        if treatment.kind != "proposed"
    ]
    lines = [diagnosis_line(report), facts_line(report), *findings, *treatments]
    return [plain(line) for line in lines]
