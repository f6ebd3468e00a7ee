"""The live screen: a snapshot laid out for a terminal of any size.

Every section is a list of single lines. The lines of the screen are divided among the sections, and
what does not fit is counted.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from grpodoctor.monitor.snapshot import Snapshot, TreatmentState
from grpodoctor.monitor.vitals import HISTORY, Vital, format_number
from grpodoctor.report.phrases import count_of
from grpodoctor.report.run.phrases import TREND_ARROWS, finding_period
from grpodoctor.report.run.view import VERDICT_TONES
from grpodoctor.report.text import TONE_STYLES
from grpodoctor.rules.base import Finding
from grpodoctor.support.safe_text import plain

WIDE = 110
"""Minimum width of the layout with two columns."""

_BLOCKS = "▁▂▃▄▅▆▇█"
_LABEL = 21
_NUMBER = 9
_UNLIMITED = 10_000
_MIN_SCALE = 0.1
"""Smallest range of a sparkline, as a share of its level."""
_STALE_SECONDS = 30.0
_STALE_STEPS = 5
"""Without a new step for this long, in seconds and in usual steps, a run is shown as stale."""
_ROOMY = 6
_HIGH = 24
"""Lines from which the whole verdict is shown."""
_VERDICT_LINES = 3
_LEFT_SHARE = 0.54
_GAP = "   "
_ALLOWED = {
    "none": "advice only",
    "safe": "applying safe remedies",
    "unsafe": "applying safe and unsafe remedies",
}
_TREATMENT_STATES = {
    "proposed": "requested, waiting for the run's answer",
    "applied": "applied",
    "undoing": "being reverted",
}


@dataclass(frozen=True, slots=True)
class Screen:
    """A snapshot as a rich renderable.

    Args:
        snapshot: what to show.
        hint: the footer, such as the keys.
        whole: show everything, even if it is higher than the terminal.
    """

    snapshot: Snapshot
    hint: str = ""
    whole: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the screen."""
        width = options.max_width
        height = _UNLIMITED if self.whole else options.size.height
        yield from compose(self.snapshot, width, height, self.hint)


def compose(snapshot: Snapshot, width: int, height: int, hint: str = "") -> list[Text]:
    """The lines of a screen: at most `height`, each at most `width` cells."""
    head = [*_header(snapshot, width), *_verdict(snapshot, width, height)]
    foot = [Text(hint, style="dim")] if hint else []
    room = max(1, height - len(head) - len(foot) - 1)
    if snapshot.waiting:
        body = [Text("Waiting for the run to start: nothing is recorded here yet.")]
    elif width >= WIDE and height < _UNLIMITED:
        body = _side_by_side(snapshot, width, room)
    else:
        body = _stacked(snapshot, width, room)
    if height < _UNLIMITED and foot:
        body += [Text()] * (room - len(body))
    return [_fit(line, width) for line in [*head, Text(), *body[:room], *foot]][:height]


def _fit(line: Text, width: int, *, pad: bool = False) -> Text:
    fitted = line.copy()
    fitted.no_wrap = True
    fitted.truncate(width, overflow="ellipsis", pad=pad)
    return fitted


def _header(snapshot: Snapshot, width: int) -> list[Text]:
    facts = snapshot.facts
    state, style = _state(snapshot)
    right = Text.assemble((state, style))
    if facts.last_step is not None:
        right.append(f"  step {facts.last_step}", style="bold")
    title = Text.assemble(("grpodoctor ", "bold cyan"), (plain(facts.path), "bold"))
    title.truncate(max(1, width - right.cell_len - 2), overflow="ellipsis", pad=True)
    return [Text.assemble(title, "  ", right), Text(_second_line(snapshot), style="dim")]


def _verdict(snapshot: Snapshot, width: int, height: int) -> list[Text]:
    """The verdict, on one line of a low screen and on at most three of a high one."""
    verdict = snapshot.verdict
    if verdict is None:
        return []
    most = _VERDICT_LINES if height >= _HIGH else 1
    lines = textwrap.wrap(
        plain(verdict.line), width, max_lines=most, placeholder=" …", break_on_hyphens=False
    )
    return [Text(line, style=TONE_STYLES[VERDICT_TONES[verdict.kind]]) for line in lines]


def _state(snapshot: Snapshot) -> tuple[str, str]:
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


def _second_line(snapshot: Snapshot) -> str:
    facts = snapshot.facts
    parts = [] if snapshot.waiting else [plain(facts.framework, limit=24)]
    if facts.model:
        parts.append(plain(facts.model, limit=40))
    if facts.seed is not None:
        parts.append(f"seed {facts.seed}")
    if snapshot.steps_per_minute is not None:
        parts.append(f"{format_number(snapshot.steps_per_minute)} steps/min")
    if snapshot.age is not None and not snapshot.finished:
        recent = snapshot.age < 1
        parts.append("last step just now" if recent else f"last step {duration(snapshot.age)} ago")
    if snapshot.damage_total:
        parts.append(count_of(snapshot.damage_total, "damaged line"))
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """A time span in the largest suitable unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _stacked(snapshot: Snapshot, width: int, room: int) -> list[Text]:
    treatment = _treatment(snapshot, width, 4 if room < _UNLIMITED // 2 else _UNLIMITED)
    skipped = _skipped(snapshot, width, 2 if room < _UNLIMITED // 2 else _UNLIMITED)
    rest = room - len(treatment) - len(skipped)
    findings = _findings(snapshot, width, max(3, min(rest // 2, _wanted(snapshot, rest))))
    vitals = _vitals(snapshot.vitals, width, max(2, rest - len(findings)))
    return [*findings, *vitals, *treatment, *skipped]


def _wanted(snapshot: Snapshot, rest: int) -> int:
    return rest - 1 - len(snapshot.vitals) if rest > 2 * len(snapshot.vitals) else rest // 2


def _side_by_side(snapshot: Snapshot, width: int, room: int) -> list[Text]:
    left_width = min(84, int(_LEFT_SHARE * width))
    right_width = width - left_width - len(_GAP)
    left = _vitals(snapshot.vitals, left_width, room)
    skipped = _skipped(snapshot, right_width, max(2, room // 5))
    treatment = _treatment(snapshot, right_width, max(4, room // 3))
    right = _findings(snapshot, right_width, max(3, room - len(skipped) - len(treatment) - 2))
    for section in (treatment, skipped):
        right += [Text(), *section] if section else []
    height = min(room, max(len(left), len(right)))
    left += [Text()] * (height - len(left))
    right += [Text()] * (height - len(right))
    return [
        Text.assemble(_fit(left_line, left_width, pad=True), _GAP, _fit(right_line, right_width))
        for left_line, right_line in zip(left[:height], right[:height], strict=True)
    ]


def _title(text: str, width: int, right: str = "") -> Text:
    line = Text(text, style="bold")
    rule = max(1, width - len(text) - len(right) - (2 if right else 1))
    line.append(" " + "─" * rule, style="dim")
    return line.append(f" {right}", style="dim") if right else line


def _vitals(vitals: Sequence[Vital], width: int, room: int) -> list[Text]:
    spark = max(0, min(HISTORY, width - _LABEL - 2 * _NUMBER - 4))
    columns = f"{'now':>{_NUMBER}}{'start':>{_NUMBER}}   "
    lines = [_title("Vitals", width - len(columns))]
    lines[0].append(columns, style="dim")
    if not vitals:
        return [*lines, Text("no readings yet", style="dim")]
    shown = vitals[: max(1, room - 1)]
    return lines + [_vital(vital, spark) for vital in shown]


def _vital(vital: Vital, spark: int) -> Text:
    line = Text(f"{vital.label:<{_LABEL}}")
    if vital.why_not:
        return line.append(f"n/a: {plain(vital.why_not)}", style="dim italic")
    line.append(f"{sparkline(vital.history, spark, vital.start):<{spark}}", style="cyan")
    line.append(f"{format_number(vital.now):>{_NUMBER}}", style="bold")
    line.append(f"{format_number(vital.start):>{_NUMBER}}", style="dim")
    return line.append(f" {TREND_ARROWS[vital.trend]}")


def sparkline(values: Sequence[float], width: int, start: float | None = None) -> str:
    """The latest `width` values as block characters; `!` for a non-finite value.

    The scale includes the run's starting value, so that a metric that has fallen stays low, and
    spans at least a tenth of the level, so that noise does not look like a change.
    """
    latest = values[-width:] if width else ()
    finite = [value for value in latest if math.isfinite(value)]
    anchored = finite if start is None else [*finite, start]
    low, high = min(anchored, default=0.0), max(anchored, default=0.0)
    slack = max(0.0, _MIN_SCALE * max(abs(low), abs(high)) - (high - low)) / 2
    low, span = low - slack, (high - low) + 2 * slack
    scale = (len(_BLOCKS) - 1) / span if span else 0.0
    return "".join(
        _BLOCKS[round((value - low) * scale)] if math.isfinite(value) else "!" for value in latest
    )


def _findings(snapshot: Snapshot, width: int, room: int) -> list[Text]:
    active = [finding for finding in snapshot.findings if finding.active]
    resolved = [finding for finding in snapshot.findings if not finding.active]
    counts = f"{len(active)} active" + (f", {len(resolved)} resolved" if resolved else "")
    lines = [_title("Findings", width, counts)]
    ordered = [*active, *resolved]
    if not ordered:
        rules = count_of(snapshot.quiet, "rule")
        return [*lines, Text(f"no findings; {rules} found nothing", style="dim")]
    summaries = [_summary(finding, width) for finding in ordered]
    fits = _summary_lines(room - 1, [len(summary) for summary in summaries])
    for finding, summary, shown in zip(ordered, summaries, fits, strict=False):
        lines += [_finding_head(finding, width), *summary[:shown]]
    if len(fits) < len(ordered):
        lines.append(Text(f"and {len(ordered) - len(fits)} more", style="dim"))
    return lines


def _summary_lines(room: int, wanted: list[int]) -> list[int]:
    """Number of summary lines for each finding shown.

    The first finding gets its full summary, then every finding gets its headline, then the others
    get their summaries.
    """
    first = min(wanted[0], max(0, room - 2))
    heads = len(wanted) if len(wanted) + first <= room else max(1, room - first - 1)
    left = room - heads - first - (heads < len(wanted))
    shown = [first]
    for lines in wanted[1:heads]:
        shown.append(lines if lines <= left else 0)
        left -= shown[-1]
    return shown


def _summary(finding: Finding, width: int) -> list[Text]:
    if not finding.active:
        return []
    lines = textwrap.wrap(plain(finding.summary), max(20, width - 2), max_lines=3, placeholder=" …")
    return [Text(f"  {line}") for line in lines]


def _finding_head(finding: Finding, width: int) -> Text:
    style = TONE_STYLES[finding.severity] if finding.active else "dim"
    mark = "●" if finding.active else "○"
    head = Text.assemble((f"{mark} {finding.severity:<8} ", style), (f"{finding.code} ", "bold"))
    since = finding_period(finding)
    head = _fit(head.append(finding.name), max(1, width - len(since) - 1), pad=True)
    return head.append(f" {since}", style="dim")


def _treatment(snapshot: Snapshot, width: int, room: int) -> list[Text]:
    if snapshot.apply == "none" and snapshot.treatment is None and not snapshot.journal:
        return []
    lines = [_title("Treatment", width, _ALLOWED[snapshot.apply])]
    if snapshot.send_error:
        lines.append(Text(plain(snapshot.send_error), style="bold red"))
    if snapshot.treatment is not None:
        lines.append(_current(snapshot.treatment))
    for entry in reversed(snapshot.journal):
        text = plain(f"step {entry.step} {entry.remedy} {entry.kind}: {entry.detail}", limit=400)
        wrapped = textwrap.wrap(text, width, subsequent_indent="  ") if room > _ROOMY else [text]
        lines += [Text(line, style="dim") for line in wrapped]
        if len(lines) >= room:
            break
    lines = lines[:room]
    return lines if len(lines) > 1 else [*lines, Text("none in progress", style="dim")]


def _current(treatment: TreatmentState) -> Text:
    line = Text.assemble(
        (f"{plain(treatment.remedy)} ", "bold green"), _TREATMENT_STATES[treatment.state]
    )
    if treatment.state == "applied":
        line.append(f" {treatment.waited}/{treatment.patience} steps")
        before, now = format_number(treatment.before), format_number(treatment.now)
        line.append(f"  {treatment.metric} {before} → {now}", style="cyan")
    return line


def _skipped(snapshot: Snapshot, width: int, room: int) -> list[Text]:
    if not snapshot.skipped:
        return []
    counts = f"{len(snapshot.skipped)} without data"
    if snapshot.not_applicable:
        counts += f", {snapshot.not_applicable} not applicable"
    lines = [_title("Skipped", width, counts)]
    if room <= 2:
        codes = ", ".join(f"{rule.code} ({', '.join(rule.missing)})" for rule in snapshot.skipped)
        return [*lines, Text(plain(codes), style="dim")]
    for index, rule in enumerate(snapshot.skipped):
        if len(lines) == room - 1 and index + 1 < len(snapshot.skipped):
            lines.append(Text(f"and {len(snapshot.skipped) - index} more", style="dim"))
            break
        needs = f"{rule.code} needs {', '.join(rule.missing)}"
        lines.append(Text(plain(f"{needs}: {rule.how}" if rule.how else needs), style="dim"))
    return lines
