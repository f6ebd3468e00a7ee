"""The watch screen as text, for `watch --once`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from grpodoctor.cli.watch_screen.entries import (
    ALLOWED,
    VITAL_COLUMNS,
    FindingEntry,
    Heading,
    crash_text,
    finding_counts,
    journal_text,
    no_findings,
    on_one_line,
    ordered,
    shows_treatment,
    skipped_counts,
    steps_shown,
    treatment_texts,
    verdict_text,
    vital_lines,
)
from grpodoctor.cli.watch_screen.page_content import first_action
from grpodoctor.monitor.snapshot import Snapshot
from grpodoctor.support.safe_text import plain


@dataclass(frozen=True)
class TextScreen:
    """A snapshot as the screen shows it; the rules that lack data are counted, not listed."""

    snapshot: Snapshot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the sections."""
        snapshot, width = self.snapshot, options.max_width
        yield Heading(snapshot)
        yield verdict_text(snapshot)
        if action := first_action(snapshot.report):
            yield on_one_line(Text(f"  {action}", style="bold"), width)
        if snapshot.report.crash:
            yield crash_text(snapshot.report.crash)
        yield ""
        yield _title("Findings", width, finding_counts(snapshot.findings))
        yield from _findings(snapshot)
        yield _title("Vitals", width, f"{steps_shown(snapshot)} {VITAL_COLUMNS}".lstrip())
        yield from vital_lines(snapshot.vitals)
        if shows_treatment(snapshot):
            yield _title("Treatment", width, ALLOWED[snapshot.apply])
            yield from treatment_texts(snapshot)
            yield from map(journal_text, reversed(snapshot.journal))
        if snapshot.skipped:
            yield _title("Skipped", width, skipped_counts(snapshot))
            command = shlex.join(["grpodoctor", "check", snapshot.facts.path, "--verbose"])
            yield Text(plain(f"{command} lists the rules that lack data"), style="dim")


def _findings(snapshot: Snapshot) -> Iterator[RenderableType]:
    if not snapshot.findings:
        yield Text(no_findings(snapshot), style="dim")
    yield from map(FindingEntry, ordered(snapshot.findings))


def _title(text: str, width: int, right: str) -> Text:
    line = Text(text, style="bold")
    line.append(" " + "─" * max(1, width - len(text) - len(right) - 2), style="dim")
    return on_one_line(line.append(f" {right}", style="dim"), width)
