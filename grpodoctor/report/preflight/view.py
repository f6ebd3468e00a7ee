"""The report of a preflight, as a view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import mode

from grpodoctor.preflight.results.preflight_results import (
    PreflightFinding,
    PreflightResults,
    UnfinishedCheck,
)
from grpodoctor.report.phrases import check_counts, severity_counts
from grpodoctor.report.view import (
    Block,
    Bullets,
    Card,
    Codes,
    Column,
    Detail,
    Inline,
    Paragraph,
    Section,
    Table,
    View,
)
from grpodoctor.support.numbers import count_of
from grpodoctor.support.safe_text import plain

_MAX_DETAIL_LETTERS = 400


def view_of(result: PreflightResults) -> View:
    """Translate the results of a preflight."""
    return View(
        product="grpodoctor preflight",
        page_title=f"Preflight of {result.model}",
        heading=result.model,
        facts=facts_line(result),
        diagnosis=diagnosis_line(result),
        warnings=(),
        blocks=tuple(_blocks(result)),
        json=result.to_json,
    )


def facts_line(result: PreflightResults) -> str:
    """What was checked, on one line."""
    if result.settings_framework:
        return f"{result.settings_framework} · settings only"
    first = "" if result.whole_file else "the first "
    sampled = f", {result.sampled_rows} of them sampled" if result.sampled_rows else ""
    return f"{first}{count_of(result.rows, 'prompt')}{sampled} · {result.seconds:.0f} s"


def filtered_line(result: PreflightResults) -> str:
    """How many prompts `--write-filtered` wrote; empty without that option."""
    if result.filtered_rows is None:
        return ""
    unsampled = result.rows - result.sampled_rows
    rest = f"; the other {unsampled} were not sampled, see --limit" if unsampled else ""
    counts = f"{result.filtered_rows} of {result.sampled_rows}"
    return f"wrote {counts} sampled prompts, those with a medium pass rate{rest}"


def diagnosis_line(result: PreflightResults) -> str:
    """The result on one line: how many findings, and how many checks could run."""
    return check_counts(
        severity_counts(finding.severity for finding in result.findings),
        [
            (len(result.passed), f"{count_of(len(result.passed), 'check')} passed"),
            (len(result.skipped), f"{len(result.skipped)} skipped"),
            (len(result.failed), f"{len(result.failed)} failed"),
        ],
    )


def _blocks(result: PreflightResults) -> Iterator[Block]:
    if result.reward:
        yield Paragraph(result.reward)
    yield from (_finding(finding) for finding in result.findings)
    if filtered := filtered_line(result):
        yield Paragraph(filtered)
    if result.failed:
        yield Section("Failed", (_unfinished(result.failed),))
    if result.skipped:
        yield Detail(
            lambda: [Section("Skipped", (_unfinished(result.skipped),))],
            (Section("Skipped", (_unfinished(_by_input(result.skipped)),)),),
        )
    if result.passed:
        yield Detail(lambda: [Section("Passed", (Codes(result.passed),))])


def _finding(entry: PreflightFinding) -> Card:
    finding = entry.finding
    body: list[Block] = [Paragraph(finding.summary)]
    if finding.details:
        details = tuple(plain(detail, limit=_MAX_DETAIL_LETTERS) for detail in finding.details)
        body.append(Bullets(details))
    return Card(
        tone=finding.severity,
        badge=finding.severity,
        code=entry.code,
        title=entry.name,
        body=tuple(body),
        advice=(Bullets(finding.advice, "advice"),) if finding.advice else (),
    )


def _by_input(checks: Iterable[UnfinishedCheck]) -> list[UnfinishedCheck]:
    """One entry for all checks that one input would enable, the input that enables most first.

    It has the most frequent reason of its checks.
    """
    alike: dict[str, list[UnfinishedCheck]] = {}
    for check in checks:
        alike.setdefault(check.remedy or check.reason, []).append(check)
    ordered = sorted(alike.values(), key=len, reverse=True)
    return [
        replace(
            first,
            name=f"and {len(others)} more" if others else first.name,
            reason=mode(check.reason for check in (first, *others)),
        )
        for first, *others in ordered
    ]


def _unfinished(checks: Iterable[UnfinishedCheck]) -> Table:
    rows = tuple(
        (f"{check.code} {check.name}".strip(), check.reason, check.remedy) for check in checks
    )
    return Table(
        (Column("check", unbroken=True), Column("reason"), Column("requires")),
        rows,
        narrow=tuple(_unfinished_line(*row) for row in rows),
    )


def _unfinished_line(check: str, reason: str, remedy: str) -> Inline:
    return (f"- {check}:", f"{reason};" if remedy else reason, remedy)
