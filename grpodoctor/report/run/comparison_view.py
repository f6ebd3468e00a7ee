"""Several runs as a view: one row per run, worst first, before the command that explains it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from grpodoctor.monitor.diagnosis.verdict import VERDICT_ORDER, VerdictKind
from grpodoctor.monitor.report import SCHEMA_VERSION, Report
from grpodoctor.report.run.view import VERDICT_TONES
from grpodoctor.report.view import (
    Block,
    Column,
    Inline,
    Paragraph,
    Remedy,
    Setting,
    Span,
    Table,
    View,
)
from grpodoctor.rules.base import SEVERITIES
from grpodoctor.support.numbers import count_of

_BEFORE_UNREADABLE: tuple[VerdictKind, ...] = ("sick", "not examined")
"""Verdicts that are worse than a path that cannot be read."""


@dataclass(frozen=True, slots=True)
class UnreadableRun:
    """A path without a run that can be read."""

    path: str
    error: str


def worst_first(reports: Sequence[Report]) -> list[Report]:
    """The reports, ordered by verdict, severity and cost."""
    return sorted(reports, key=_rank)


def _rank(report: Report) -> tuple[int, int, int, str]:
    verdict, problems = report.diagnosis.verdict, report.diagnosis.problems
    severity = SEVERITIES.index(problems[0].severity) if problems else 0
    cost = problems[0].cost.steps if problems else 0
    return VERDICT_ORDER.index(verdict.kind), -severity, -cost, report.run.path


def view_of_runs(
    reports: Sequence[Report], unreadable: Sequence[UnreadableRun], root: str = ""
) -> View:
    """Translate the reports of several runs.

    Args:
        reports: the reports.
        unreadable: the paths that could not be read.
        root: directory that all runs are in; their paths are shown without it.
    """
    ordered = worst_first(reports)
    log = _shared_log(ordered)
    return View(
        product="grpodoctor",
        page_title=f"Training health of {count_of(len(ordered), 'run')}",
        heading=log or root or count_of(len(ordered) + len(unreadable), "run"),
        facts="worst first" if len(ordered) > 1 else "",
        diagnosis=_counts(ordered, unreadable),
        warnings=(),
        blocks=tuple(_blocks(ordered, unreadable, root)),
        json=lambda: _json(ordered, unreadable),
    )


def _shared_log(reports: Sequence[Report]) -> str:
    """The log that holds all runs; empty if they have separate logs."""
    logs = {_log_and_run(report)[0] for report in reports}
    return logs.pop() if len(logs) == 1 else ""


def _log_and_run(report: Report) -> tuple[str, str]:
    """The log of several runs, and the one as `--where` takes it; empty if it has a single run."""
    log, _, run = report.run.path.rpartition(" (")
    return (log, run.removesuffix(")")) if "=" in run and run.endswith(")") else ("", "")


def _command(report: Report) -> str:
    """The command that examines one of the runs alone."""
    log, conditions = _log_and_run(report)
    chosen = (part for each in conditions.split(", ") if each for part in ("--where", each))
    return shlex.join(["grpodoctor", "check", log or report.run.path, *chosen])


def _counts(reports: Sequence[Report], unreadable: Sequence[UnreadableRun]) -> Inline:
    kinds = [report.diagnosis.verdict.kind for report in reports]
    counts = [
        Span(f"{kinds.count(kind)} {kind}", "strong", VERDICT_TONES[kind])
        for kind in VERDICT_ORDER
        if kind in kinds
    ]
    if unreadable:
        counts.append(Span(f"{len(unreadable)} unreadable", "strong", "warning"))
    separated = [span for count in counts for span in (Span("·"), count)]
    return tuple(separated[1:]) or "no run was found"


def _blocks(
    reports: Sequence[Report], unreadable: Sequence[UnreadableRun], root: str
) -> Iterator[Block]:
    if not reports and not unreadable:
        yield Paragraph("No run was found.")
        return
    columns = (
        Column("verdict", unbroken=True),
        Column("since step", numeric=True),
        Column("run", unbroken=True, cut=True),
        Column("cause"),
    )
    is_one_log = bool(_shared_log(reports))
    paths = [report.run.path for report in reports]
    names = [_log_and_run(each)[1] if is_one_log else _path_below(path, root)
             for each, path in zip(reports, paths, strict=True)]  # fmt: skip
    rows = [_row(report, name) for report, name in zip(reports, names, strict=True)]
    place = sum(each.diagnosis.verdict.kind in _BEFORE_UNREADABLE for each in reports)
    rows[place:place] = [
        (Span("unreadable", "strong", "warning"), "", _path_below(run.path, root), run.error)
        for run in unreadable
    ]
    yield Table(columns, tuple(rows))
    for report in reports[:1]:
        title = "The first run in detail:" if len(rows) > 1 else "In detail:"
        yield Remedy(title, (Setting(_command(report)),))


def _path_below(path: str, root: str) -> str:
    return path.removeprefix(f"{root.rstrip('/')}/") if root else path


def _row(report: Report, path: str) -> tuple[Inline, ...]:
    verdict = report.diagnosis.verdict
    since = "" if verdict.since is None else str(verdict.since)
    return Span(verdict.kind, "strong", VERDICT_TONES[verdict.kind]), since, path, _cause(report)


def _cause(report: Report) -> str:
    """The verdict's finding as a whole, code first; without one, what the verdict says first.

    A verdict of flat has its own figures, of the whole run; its finding has those of a window.
    """
    verdict, problems = report.diagnosis.verdict, report.diagnosis.problems
    for problem in problems if verdict.kind != "flat" else ():
        if problem.cause.code == verdict.code:
            return f"{problem.present.code}: {problem.present.summary.rstrip('.')}"
    return verdict.sentence.split("; ")[0].rstrip(".")


def _json(reports: Sequence[Report], unreadable: Sequence[UnreadableRun]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [report.to_json() for report in reports],
        "unreadable": [{"path": run.path, "error": run.error} for run in unreadable],
    }
