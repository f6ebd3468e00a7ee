"""The lines of the watch screen as rich renderables, which fit themselves to the width they get.

The interactive screen and the text of `watch --once` show the same lines.
"""

from __future__ import annotations

import itertools
import math
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.text import Text

from grpodoctor.monitor.crash_report import CrashReport
from grpodoctor.monitor.report import TreatmentEntry
from grpodoctor.monitor.snapshot import Snapshot, TreatmentState
from grpodoctor.monitor.vitals import Vital, format_reading
from grpodoctor.report.run.phrases import TREND_ARROWS, finding_period
from grpodoctor.report.run.view import VERDICT_TONES
from grpodoctor.report.text import TONE_STYLES
from grpodoctor.rules.base import Finding
from grpodoctor.rules.diagnosis import Skipped
from grpodoctor.support.numbers import count_of, duration
from grpodoctor.support.safe_text import plain
from grpodoctor.treatment.treatments import Treatment

_BLOCKS = "▁▂▃▄▅▆▇█"
_LABEL = 21
_NUMBER = 10
_MIN_SCALE = 0.1
"""Smallest range of a sparkline, as a share of its level."""
_STALE_SECONDS = 30.0
_STALE_STEPS = 5
"""Without a new step for this long, in seconds and in usual steps, a run is shown as stale."""

ALLOWED = {
    "none": "advice only",
    "ask": "asking before each remedy",
    "safe": "applying safe remedies",
    "unsafe": "applying safe and unsafe remedies",
}
"""The words for what may be applied, in the title of the treatment pane."""

_TREATMENT_STATES = {
    "proposed": "requested, waiting for the run's answer",
    "applied": "switched on and off",
    "keeping": "being kept",
    "undoing": "being reverted",
}


@dataclass(frozen=True)
class Heading:
    """Path, state and step of a run on one line, and its facts on a second one.

    Args:
        snapshot: the run.
        has_backlog: whether older steps are still being read.
        is_paused: whether the screen is paused.
    """

    snapshot: Snapshot
    has_backlog: bool = False
    is_paused: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield both lines."""
        snapshot, width = self.snapshot, options.max_width
        state = ("reading older steps", "yellow") if self.has_backlog else state_of(snapshot)
        right = Text.assemble(state)
        if self.is_paused:
            right.append("  paused", style="bold yellow")
        if snapshot.facts.last_step is not None:
            right.append(f"  step {snapshot.facts.last_step}", style="bold")
        title = Text.assemble(("grpodoctor ", "bold cyan"), (plain(snapshot.facts.path), "bold"))
        title.truncate(max(1, width - right.cell_len - 2), overflow="ellipsis", pad=True)
        yield on_one_line(Text.assemble(title, "  ", right), width)
        yield on_one_line(Text(_facts(snapshot), style="dim"), width)


def on_one_line(text: Text, width: int, *, pad: bool = False) -> Text:
    """The text, cut with an ellipsis if it is too long."""
    fitted = text.copy()
    fitted.no_wrap = True
    fitted.truncate(max(1, width), overflow="ellipsis", pad=pad)
    return fitted


def state_of(snapshot: Snapshot) -> tuple[str, str]:
    """The word for the state of the run, and its style."""
    if snapshot.waiting:
        return "waiting", "yellow"
    if snapshot.finished:
        return "finished", "bold"
    if _is_stale(snapshot):
        return "no new steps", "bold yellow"
    return "live", "bold green"


def _is_stale(snapshot: Snapshot) -> bool:
    pace = snapshot.steps_per_minute
    usual = 60 / pace if pace else 0.0
    return snapshot.age is not None and snapshot.age > max(_STALE_SECONDS, _STALE_STEPS * usual)


def _facts(snapshot: Snapshot) -> str:
    facts = snapshot.facts
    parts = [] if snapshot.waiting else [plain(facts.framework, limit=24)]
    if facts.model:
        parts.append(plain(facts.model, limit=40))
    if facts.seed is not None:
        parts.append(f"seed {facts.seed}")
    if snapshot.steps_per_minute is not None:
        parts.append(f"{snapshot.steps_per_minute:.3g} steps/min")
    if snapshot.age is not None and not snapshot.finished:
        written = "log written" if snapshot.waiting else "last step"
        ago = "just now" if snapshot.age < 1 else f"{duration(snapshot.age)} ago"
        parts.append(f"{written} {ago}")
    if snapshot.damage_total:
        parts.append(count_of(snapshot.damage_total, "damaged line"))
    return " · ".join(parts)


def written_ago(written_at: float) -> str:
    """How long ago something was written, given its Unix time."""
    return f"written {duration(time.time() - written_at)} ago"


def shown_path(path: Path, folder: Path) -> str:
    """A path as the user would type it in a folder, without control characters."""
    return plain(str(path.relative_to(folder) if path.is_relative_to(folder) else path))


READING = Text("Reading the steps that exist; the verdict follows.")


@dataclass(frozen=True)
class VerdictLines:
    """The verdict on at most so many lines, or that the run is still being read.

    Args:
        snapshot: the run.
        most: the number of lines.
        has_backlog: whether older steps are still being read. The verdict on a part of a finished
            run would be another one a second later.
        action: what to paste or type first, on one line below the verdict; empty for none.
    """

    snapshot: Snapshot
    most: int
    has_backlog: bool = False
    action: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        text = READING if self.has_backlog else verdict_text(self.snapshot)
        lines = textwrap.wrap(
            text.plain,
            options.max_width,
            max_lines=self.most,
            placeholder=" …",
            break_on_hyphens=False,
        )
        yield Text("\n".join(lines), text.style)
        if self.action and not self.has_backlog:
            yield on_one_line(Text(f"  {self.action}", style="bold"), options.max_width)
        crash = self.snapshot.report.crash
        if crash and not self.has_backlog:
            yield on_one_line(crash_text(crash), options.max_width)


def crash_text(crash: CrashReport) -> Text:
    """The error with which the log ends, and what to do about it."""
    return Text(plain(crash.line), style="yellow")


def verdict_text(snapshot: Snapshot) -> Text:
    """The verdict, or that there is none yet."""
    if snapshot.waiting and snapshot.age is not None:
        return Text("Waiting for the first step: the log exists, but no step was read from it yet.")
    if snapshot.waiting:
        return Text("Waiting for the run to start: nothing is recorded here yet.")
    if snapshot.verdict is None:
        return Text("No step has been read yet.")
    return Text(
        plain(snapshot.verdict.line), style=TONE_STYLES[VERDICT_TONES[snapshot.verdict.kind]]
    )


@dataclass(frozen=True)
class VitalLine:
    """A vital sign on one line; the sparkline takes the width that is left.

    Args:
        vital: the vital sign.
        most_readings: readings of the vital sign that has most. All sparklines cover the whole run,
            so that their columns are the same steps.
    """

    vital: Vital
    most_readings: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the line."""
        yield on_one_line(self._line(options.max_width), options.max_width)

    def _line(self, width: int) -> Text:
        vital = self.vital
        line = Text(f"{vital.label:<{_LABEL}}")
        if vital.why_not:
            return line.append(f"n/a: {plain(vital.why_not)}", style="dim italic")
        spark = max(0, width - _LABEL - 2 * _NUMBER - 2)
        course = fitted(vital.course, min(spark, self.most_readings))
        line.append(f"{sparkline(course, spark, vital.start):<{spark}}", style="cyan")
        line.append(f"{format_reading(vital.metric, vital.now):>{_NUMBER}}", style="bold")
        line.append(f"{format_reading(vital.metric, vital.start):>{_NUMBER}}", style="dim")
        return line.append(f" {TREND_ARROWS[vital.trend]}")


VITAL_COLUMNS = f"{'now':>{_NUMBER}}{'start':>{_NUMBER}}  "
"""Titles of the columns of numbers, to be aligned right."""


def vital_lines(vitals: Sequence[Vital]) -> list[VitalLine]:
    """The vital signs, each on one line."""
    most = max((len(vital.course) for vital in vitals), default=0)
    return [VitalLine(vital, most) for vital in vitals]


def steps_shown(snapshot: Snapshot) -> str:
    """The steps that the sparklines cover; empty before the first one."""
    first, last = snapshot.facts.first_step, snapshot.facts.last_step
    return "" if first is None or last is None or first == last else f"steps {first} to {last}"


def fitted(values: Sequence[float], width: int) -> list[float]:
    """Values spread over `width` columns: the mean of those in each, or the one before it.

    A column with a value that is not finite has such a value.
    """
    count = len(values)
    if not count or width <= 0:
        return []
    bounds = [column * count // width for column in range(width + 1)]
    parts = (values[begin : max(end, begin + 1)] for begin, end in itertools.pairwise(bounds))
    return [sum(part) / len(part) for part in parts]


def sparkline(values: Sequence[float], width: int, start: float | None = None) -> str:
    """The latest `width` values as block characters; `!` for a non-finite value.

    The scale includes the run's starting value, so that a metric that has fallen stays low, and
    spans at least a tenth of the level, so that noise does not look like a change.
    """
    latest = values[-width:] if width else ()
    low, span = _scale(latest, start)
    scale = (len(_BLOCKS) - 1) / span if span else 0.0
    return "".join(
        _BLOCKS[round((value - low) * scale)] if math.isfinite(value) else "!" for value in latest
    )


def _scale(values: Sequence[float], start: float | None) -> tuple[float, float]:
    """The lowest value of the scale, and its range."""
    finite = [value for value in values if math.isfinite(value)]
    anchored = finite if start is None else [*finite, start]
    low, high = min(anchored, default=0.0), max(anchored, default=0.0)
    slack = max(0.0, _MIN_SCALE * max(abs(low), abs(high)) - (high - low)) / 2
    return low - slack, (high - low) + 2 * slack


def plot(values: Sequence[float], width: int, height: int, start: float | None = None) -> list[str]:
    """The latest `width` values as columns of block characters, highest line first."""
    latest = values[-width:] if width else ()
    low, span = _scale(latest, start)
    steps = height * len(_BLOCKS) - 1
    levels = [
        round((value - low) / span * steps) + 1 if span and math.isfinite(value) else 0
        for value in latest
    ]
    return [
        "".join(_cell(level, row, value) for level, value in zip(levels, latest, strict=True))
        for row in reversed(range(height))
    ]


def _cell(level: int, row: int, value: float) -> str:
    """One character of a column that is `level` eighths high; `row` counts from the bottom."""
    if not math.isfinite(value):
        return "!"
    filled = min(len(_BLOCKS), level - row * len(_BLOCKS))
    return _BLOCKS[filled - 1] if filled > 0 else " "


@dataclass(frozen=True)
class FindingEntry:
    """A finding: its name and period on one line; if it is active, its summary below."""

    finding: Finding

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        finding, width = self.finding, options.max_width
        style = TONE_STYLES[finding.severity] if finding.active else "dim"
        mark = "●" if finding.active else "○"
        head = Text.assemble(
            (f"{mark} {finding.severity:<8} ", style), (f"{finding.code} ", "bold")
        )
        since = finding_period(finding)
        name = on_one_line(head.append(finding.name), width - len(since) - 1, pad=True)
        yield on_one_line(name.append(f" {since}", style="dim"), width)
        if finding.active:
            yield indented(Text(plain(finding.summary)))


def indented(text: Text) -> Padding:
    """Text that is wrapped below a headline."""
    return Padding(text, (0, 0, 0, 2))


def finding_counts(findings: Sequence[Finding]) -> str:
    """How many findings are active and resolved."""
    active = sum(finding.active for finding in findings)
    resolved = len(findings) - active
    return f"{active} active" + (f", {resolved} resolved" if resolved else "")


def ordered(findings: Sequence[Finding]) -> list[Finding]:
    """Active findings first."""
    return sorted(findings, key=lambda finding: not finding.active)


def no_findings(snapshot: Snapshot) -> str:
    """What is shown in place of findings."""
    if snapshot.verdict is None:
        return "no findings yet; the rules run from the first step"
    return f"no findings; {count_of(snapshot.quiet, 'rule')} found nothing"


def skipped_counts(snapshot: Snapshot) -> str:
    """How many rules could not run, and why."""
    counts = f"{len(snapshot.skipped)} without data"
    if snapshot.not_applicable:
        counts += f", {snapshot.not_applicable} not applicable"
    return counts


@dataclass(frozen=True)
class SkippedLine:
    """What a rule needs, and how to record it, cut to one line."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the line."""
        yield on_one_line(self.text, options.max_width)


def skipped_text(rule: Skipped) -> Text:
    """What a rule needs, and how to record it."""
    needs = f"{rule.code} needs {', '.join(rule.missing)}"
    return Text(plain(f"{needs}: {rule.how}" if rule.how else needs), style="dim")


def treatment_texts(snapshot: Snapshot) -> Iterator[Text]:
    """The proposal or the treatment in progress, and the error of the latest request."""
    if snapshot.send_error:
        yield Text(plain(snapshot.send_error), style="bold red")
    if snapshot.proposal is not None:
        yield proposal_text(snapshot.proposal)
    if snapshot.treatment is not None:
        yield _current(snapshot.treatment)


def proposal_text(proposal: Treatment) -> Text:
    """A treatment that waits for approval."""
    return Text.assemble(
        (f"{plain(proposal.remedy)} ", "bold green"),
        f"proposed for {plain(proposal.finding)}: ",
        (change_text(proposal), "cyan"),
        (". Press a to approve.", "bold"),
    )


def change_text(treatment: Treatment) -> str:
    """The knobs that a treatment changes, on one line."""
    before = treatment.before
    return plain(
        ", ".join(f"{knob} {before[knob]} → {new}" for knob, new in treatment.changes.items())
    )


def _current(treatment: TreatmentState) -> Text:
    line = Text.assemble(
        (f"{plain(treatment.remedy)} ", "bold green"), _TREATMENT_STATES[treatment.state]
    )
    if treatment.state == "applied":
        line.append(f" {treatment.waited}/{treatment.patience} steps")
        off = format_reading(treatment.metric, treatment.untreated)
        on = format_reading(treatment.metric, treatment.treated)
        line.append(f"  {treatment.metric} {off} off, {on} on", style="cyan")
    return line


def journal_text(entry: TreatmentEntry) -> Text:
    """A line of the treatment journal."""
    text = f"step {entry.step} {entry.remedy} {entry.kind}: {entry.detail}"
    return Text(plain(text, limit=400), style="dim")


def shows_treatment(snapshot: Snapshot) -> bool:
    """Whether treatments are part of the screen."""
    return snapshot.apply != "none" or snapshot.treatment is not None or bool(snapshot.journal)
