"""The panes of the watch screen: lists that keep their place while the run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.console import RenderableType
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from grpodoctor.cli.watch_screen.entries import (
    ALLOWED,
    VITAL_COLUMNS,
    FindingEntry,
    SkippedLine,
    finding_counts,
    journal_text,
    no_findings,
    ordered,
    shows_treatment,
    skipped_counts,
    skipped_text,
    steps_shown,
    treatment_texts,
    vital_lines,
)
from grpodoctor.cli.watch_screen.page_content import (
    Page,
    finding_page,
    journal_page,
    rule_page,
    vital_page,
)
from grpodoctor.monitor.snapshot import Snapshot
from grpodoctor.rules.base import Finding
from grpodoctor.support.safe_text import plain


@dataclass(frozen=True)
class Entry:
    """One entry of a pane."""

    id: str
    shown: RenderableType
    search_text: str
    """What the filter searches."""
    page: Page | None = None
    """What Enter opens."""
    title: str = ""
    finding: Finding | None = None


class Pane(OptionList):
    """A titled list of entries, filtered by a text.

    Args:
        name: the title.
        id: id of the widget.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "Open", key_display="Enter"),
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
    ]

    def __init__(self, name: str, *, id: str) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id, markup=False)
        self._title, self._counts = name, ""
        self._entries: tuple[Entry, ...] = ()
        self._visible: tuple[Entry, ...] = ()
        self._filter = ""

    @property
    def chosen(self) -> Entry | None:
        """The highlighted entry."""
        place = self.highlighted
        return None if place is None or place >= len(self._visible) else self._visible[place]

    def show(self, entries: Sequence[Entry], counts: str = "") -> None:
        """Replace the entries.

        Args:
            entries: the new entries.
            counts: what the title says about them.
        """
        self._entries, self._counts = tuple(entries), counts
        self._refresh_list()

    def filter(self, text: str) -> None:
        """Show only the entries that contain a text; an empty one shows all."""
        self._filter = text.casefold()
        self._refresh_list()

    def _refresh_list(self) -> None:
        visible = tuple(
            entry for entry in self._entries if self._filter in entry.search_text.casefold()
        )
        if [each.id for each in visible] == [each.id for each in self._visible]:
            self._replace_changed(visible)
        else:
            self._replace_all(visible)
        self.border_title = Text(self._title_line())

    def _title_line(self) -> str:
        counted = f"{len(self._visible)} of {len(self._entries)} match"
        matches = f"{counted} '{plain(self._filter, limit=24)}'" if self._filter else ""
        return "  ".join(part for part in (self._title, self._counts, matches) if part)

    def _replace_changed(self, visible: tuple[Entry, ...]) -> None:
        pairs = zip(self._visible, visible, strict=True)
        for place, (before, after) in enumerate(pairs):
            if before.shown != after.shown:
                self.replace_option_prompt_at_index(place, after.shown)
        self._visible = visible

    def _replace_all(self, visible: tuple[Entry, ...]) -> None:
        chosen, offset = self.chosen, self.scroll_y
        was_moved = bool(self.highlighted)  # the first entry stays highlighted otherwise
        self._visible = visible
        self.set_options(Option(entry.shown) for entry in visible)
        ids = [entry.id for entry in visible]
        if was_moved and chosen is not None and chosen.id in ids:
            self.highlighted = ids.index(chosen.id)
        elif visible:
            self.highlighted = 0
        self.scroll_to(y=offset, animate=False)


class VitalsPane(Pane):
    """The vital signs; the title names the columns of numbers."""

    def _title_line(self) -> str:
        head = super()._title_line()
        rule = self.size.width - len(head) - len(VITAL_COLUMNS) - 3
        return f"{head} {'─' * max(0, rule)}{VITAL_COLUMNS}"

    def on_resize(self) -> None:
        """Align the titles with the columns."""
        self.border_title = Text(self._title_line())


class SkippedPane(Pane):
    """The rules without data, one on each line; the title says how many are out of sight."""

    def _title_line(self) -> str:
        hidden = len(self._visible) - self.size.height
        more = f"; {hidden} more below" if hidden > 0 and self.size.height else ""
        return f"{super()._title_line()}{more}"

    def on_resize(self) -> None:
        """Count the lines of the new height."""
        self.border_title = Text(self._title_line())


def show_findings(pane: Pane, snapshot: Snapshot) -> None:
    """Show the findings, active ones first."""
    entries = [
        Entry(
            id=f"{finding.code}-{finding.onset_step}",
            shown=FindingEntry(finding),
            search_text=f"{finding.code} {finding.name} {finding.severity} {finding.summary}",
            page=finding_page(finding),
            title=f"{finding.code} {finding.name}",
            finding=finding,
        )
        for finding in ordered(snapshot.findings)
    ]
    none = Entry("none", Text(no_findings(snapshot), "dim"), "")
    hint = "; Enter opens one" if entries else ""
    pane.show(entries or [none], finding_counts(snapshot.findings) + hint)


def show_vitals(pane: Pane, snapshot: Snapshot) -> None:
    """Show the vital signs, most important first."""
    entries = [
        Entry(
            id=vital.metric,
            shown=line,
            search_text=f"{vital.label} {vital.metric}",
            page=vital_page(vital),
            title=vital.label,
        )
        for vital, line in zip(snapshot.vitals, vital_lines(snapshot.vitals), strict=True)
    ]
    none = Entry("none", Text("no readings yet", "dim"), "")
    pane.show(entries or [none], steps_shown(snapshot))


def show_treatment(pane: Pane, snapshot: Snapshot) -> None:
    """Show the treatment in progress and the journal; hide the pane if there is neither."""
    pane.display = shows_treatment(snapshot)
    texts = [*treatment_texts(snapshot), *map(journal_text, reversed(snapshot.journal))]
    entries = [
        Entry(str(place), text, text.plain, journal_page, "Treatment journal")
        for place, text in enumerate(texts)
    ]
    none = Entry("none", Text("none in progress", "dim"), "")
    pane.show(entries or [none], ALLOWED[snapshot.apply])


def show_skipped(pane: Pane, snapshot: Snapshot) -> None:
    """Show the rules that lack data; hide the pane if there are none."""
    pane.display = bool(snapshot.skipped)
    entries = []
    for rule in snapshot.skipped:
        text = skipped_text(rule)
        shown = SkippedLine(text)
        entries.append(Entry(rule.code, shown, text.plain, rule_page(rule.code), rule.code))
    pane.show(entries, skipped_counts(snapshot))
