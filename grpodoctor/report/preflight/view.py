"""The report of a preflight, as a view."""

from __future__ import annotations

from collections.abc import Iterator

from grpodoctor.preflight.rows import MOST_ROWS
from grpodoctor.preflight.run import NotMade, Preflight, Seen
from grpodoctor.report.phrases import check_counts, count_of, severity_counts
from grpodoctor.report.view import (
    Block,
    Bullets,
    Card,
    Codes,
    Column,
    Detail,
    Paragraph,
    Section,
    Table,
    View,
)
from grpodoctor.support.safe_text import plain

_MAX_DETAIL_LETTERS = 400


def view_of(result: Preflight) -> View:
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


def facts_line(result: Preflight) -> str:
    """What was checked, on one line."""
    first = "the first " if result.rows == MOST_ROWS else ""
    sampled = f", {result.asked} of them sampled" if result.asked else ""
    return f"{first}{count_of(result.rows, 'prompt')}{sampled} · {result.seconds:.0f} s"


def filtered_line(result: Preflight) -> str:
    """How many prompts `--write-filtered` wrote; empty without that option."""
    if result.filtered is None:
        return ""
    unsampled = result.rows - result.asked
    rest = f"; the other {unsampled} were not sampled, see --limit" if unsampled else ""
    return f"wrote {result.filtered} of {result.asked} prompts, those of medium difficulty{rest}"


def diagnosis_line(result: Preflight) -> str:
    """The result on one line: how many findings, and how many checks could run."""
    return check_counts(
        severity_counts(finding.severity for finding in result.seen),
        [
            (len(result.passed), f"{count_of(len(result.passed), 'check')} passed"),
            (len(result.skipped), f"{len(result.skipped)} skipped"),
            (len(result.failed), f"{len(result.failed)} failed"),
        ],
    )


def _blocks(result: Preflight) -> Iterator[Block]:
    yield from (_finding(finding) for finding in result.seen)
    if filtered := filtered_line(result):
        yield Paragraph(filtered)
    if result.failed:
        yield Section("Failed", (_unfinished(result.failed),))
    if result.skipped:
        yield Section("Skipped", (_unfinished(result.skipped),))
    if result.passed:
        yield Detail(lambda: [Section("Passed", (Codes(result.passed),))])


def _finding(finding: Seen) -> Card:
    remark = finding.remark
    body: list[Block] = [Paragraph(remark.summary)]
    if remark.details:
        details = tuple(plain(detail, limit=_MAX_DETAIL_LETTERS) for detail in remark.details)
        body.append(Bullets(details))
    return Card(
        tone=finding.severity,
        badge=finding.severity,
        code=finding.code,
        title=finding.name,
        body=tuple(body),
        advice=(Bullets(remark.advice, "advice"),) if remark.advice else (),
    )


def _unfinished(checks: tuple[NotMade, ...]) -> Table:
    rows = tuple((f"{check.code} {check.name}".strip(), check.why, check.how) for check in checks)
    return Table((Column("check"), Column("reason"), Column("requires")), rows)
