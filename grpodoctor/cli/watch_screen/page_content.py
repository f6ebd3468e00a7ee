"""What the pages of the watch screen show: a finding with its fix, a vital sign, the whole report.

A page is a function from the state of the run to rich renderables, because an open page follows the
run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from grpodoctor.cli.rule_page import page_text
from grpodoctor.cli.watch_screen.entries import change_text, fitted, journal_text, plot
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.monitor.snapshot import Snapshot
from grpodoctor.monitor.vitals import Vital, format_reading
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.report.run.finding_view import first_steps, problem_card, symptom_card
from grpodoctor.report.run.view import view_of
from grpodoctor.report.text import renderables
from grpodoctor.report.view import Block, Card, Remedy, View
from grpodoctor.rules.base import Finding
from grpodoctor.rules.catalogue import all_rules, find
from grpodoctor.support.numbers import count_of
from grpodoctor.support.safe_text import plain
from grpodoctor.treatment.treatments import Treatment
from grpodoctor.vocabulary.metrics import metric_of

Page = Callable[[Snapshot], Sequence[RenderableType]]
"""The content of a page; empty if what it is about no longer exists."""

_PLOT_LINES = 10
_NEW_LINE = re.compile(r"[-*•] |\d+\. |\w+ = ")
"""Lines of a manual page that do not continue the line above: items and thresholds."""


@dataclass(frozen=True)
class Content:
    """A report or blocks of one, rendered for the width of the screen."""

    content: View | tuple[Block, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        yield from renderables(self.content, options.max_width)


def finding_page(finding: Finding) -> Page:
    """A finding: evidence, symptoms, remedies with their settings, and the page of its rule."""

    def content(snapshot: Snapshot) -> Sequence[RenderableType]:
        card = card_of(finding, snapshot.report)
        if card is None:
            return ()
        rule = find(all_rules(), finding.code)
        return (Content((card,)), "", *manual(page_text(rule)))

    return content


def card_of(finding: Finding, report: Report) -> Card | None:
    """The card of a finding as it is now; None if the run no longer has it."""
    key = (finding.code, finding.onset_step)
    for problem in report.diagnosis.problems:
        if (problem.cause.code, problem.cause.onset_step) == key:
            return problem_card(problem, report)
        for symptom in problem.symptoms:
            if (symptom.finding.code, symptom.finding.onset_step) == key:
                return symptom_card(symptom, problem, report)
    return None


def settings_of(finding: Finding, report: Report) -> list[str]:
    """The settings of the first remedy that has any, as lines to copy."""
    card = card_of(finding, report)
    remedies = [block for block in card.advice if isinstance(block, Remedy)] if card else []
    for remedy in remedies:
        if lines := [plain(each.text) for each in remedy.settings if each.copyable]:
            return lines
    return []


def first_action(report: Report) -> str:
    """The first line to paste or type for the verdict; empty if there is none.

    Further lines are only counted: Enter on the finding shows all of them, and `y` copies them.
    """
    lines = [plain(each.commented) for each in first_steps(report) if each.copyable]
    more = f"  (+{count_of(len(lines) - 1, 'line')})" if len(lines) > 1 else ""
    return f"{lines[0]}{more}" if lines else ""


@dataclass(frozen=True)
class _Plot:
    """A vital sign over the whole run."""

    vital: Vital

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the plot."""
        width = min(options.max_width, len(self.vital.course))
        course = fitted(self.vital.course, width)
        lines = plot(course, width, _PLOT_LINES, self.vital.start)
        yield Text("\n".join(lines), style="cyan", no_wrap=True)


def vital_page(vital: Vital) -> Page:
    """A vital sign: what it is, its course, and why it may be missing."""

    def content(snapshot: Snapshot) -> Sequence[RenderableType]:
        now = next((each for each in snapshot.vitals if each.metric == vital.metric), None)
        return tuple(_vital(now)) if now else ()

    return content


def _vital(vital: Vital) -> Iterator[RenderableType]:
    yield Text.assemble((vital.label, "bold"), f"  {vital.metric}")
    row = metric_of(vital.metric)
    if row is not None:
        yield Text(f"{row.summary} ({row.kind}, {row.unit or 'no unit'}; over {row.over})")
    if vital.why_not:
        yield Text(plain(f"not applicable: {vital.why_not}"))
        return
    now, start = (format_reading(vital.metric, value) for value in (vital.now, vital.start))
    yield Text(f"now {now} · start {start}", "bold")
    yield ""
    yield _Plot(vital)
    finite = sorted(value for value in vital.history if value == value)
    if finite:
        low, high = (format_reading(vital.metric, value) for value in (finite[0], finite[-1]))
        count = len(vital.history)
        latest = f"latest {count} readings: lowest {low}, highest {high}"
        yield Text(f"whole run; {latest}", "dim")


def rule_page(code: str) -> Page:
    """The page of a rule that could not run, with the settings that would let it."""

    def content(snapshot: Snapshot) -> Sequence[RenderableType]:
        skipped = next((each for each in snapshot.skipped if each.code == code), None)
        missing = f"{code} needs {', '.join(skipped.missing)}. {skipped.how}" if skipped else ""
        rule = find(all_rules(), code)
        return (
            *((Text(plain(missing), "bold"), "") if missing else ()),
            *manual(page_text(rule)),
        )

    return content


def manual(page: str) -> Iterator[RenderableType]:
    """A manual page, its paragraphs joined so that they fill any width."""
    paragraph, indent = "", 0
    for line in [*plain(page, lines=True).splitlines(), ""]:
        words, depth = line.strip(), len(line) - len(line.lstrip())
        is_new = not words or depth != indent or _NEW_LINE.match(words)
        if is_new and paragraph:
            yield Padding(Text(paragraph, "dim" if indent else "bold"), (0, 0, 0, indent))
            paragraph = ""
        if not words:
            yield ""
        paragraph = f"{paragraph} {words}".strip()
        indent = depth


def journal_page(snapshot: Snapshot) -> Sequence[RenderableType]:
    """The whole journal of treatments, latest first."""
    if not snapshot.journal:
        return (Text("No treatment has been applied."),)
    return tuple(journal_text(entry) for entry in reversed(snapshot.journal))


def proposal_page(proposal: Treatment, snapshot: Snapshot) -> Sequence[RenderableType]:
    """What a proposed treatment changes, why, and what happens after its approval."""
    remedy = remedy_of(proposal.remedy)
    finding = next((each for each in snapshot.findings if each.code == proposal.finding), None)
    summary = f"{finding.code} {finding.name}: {finding.summary}" if finding else proposal.finding
    waiting = f"Proposed at step {proposal.proposed_step}; it does not time out."
    return (
        Text.assemble((remedy.id, "bold green"), f" ({remedy.applicability}): {remedy.title}"),
        Text(plain(summary)),
        *([Text(f"{plain(proposal.reason)}.", "yellow")] if proposal.reason else []),
        Text(change_text(proposal), "bold cyan"),
        Text(
            f"{waiting} After approval, its effect is judged, and it is undone if it does not help."
        ),
    )


def report_page(snapshot: Snapshot) -> Sequence[RenderableType]:
    """The whole report, as `check --verbose` prints it."""
    data = ReportData(snapshot.report, snapshot.vitals)
    return (Content(view_of(data, verbose=True)),)
