"""The pages that open over the panes: a finding, a vital sign, the report, the help."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from grpodoctor.cli.watch_screen.key_line import KeyLine
from grpodoctor.cli.watch_screen.page_content import Page, proposal_page, settings_of
from grpodoctor.monitor.snapshot import Snapshot
from grpodoctor.rules.base import Finding
from grpodoctor.treatment.treatments import Treatment

KEYS = (
    ("↑ ↓, j k", "move in a list, scroll a page"),
    ("PgUp PgDn Home End", "move faster"),
    ("Tab, Shift+Tab", "next pane, previous pane"),
    ("Enter, click", "open a finding with its page and its fix, a vital sign, a rule"),
    ("Esc, Backspace", "back"),
    ("/", "filter all panes; Enter keeps the filter, Esc removes it"),
    ("r", "the whole report: verdict, settings, coverage, how the log was read"),
    ("Space", "pause and resume the display; the run is examined all the time"),
    ("s", "save a report with charts as an HTML file in the current directory"),
    ("y", "copy the settings of the finding's first fix"),
    ("a", "open the proposed treatment (with --apply ask); then a approves, d declines it"),
    ("?", "this help"),
    ("Ctrl-Z", "suspend"),
    ("q, Ctrl-C", "quit; the run continues"),
)
"""Every key and what it does."""


class ContentPage(Screen[None]):
    """A page that follows the run.

    Args:
        title: shown in the first line.
        content: what it shows.
        snapshot: the state of the run.
        finding: the finding whose settings can be copied.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.close_page", "Back", key_display="Esc"),
        Binding("j", "scroll_lines(1)", show=False),
        Binding("k", "scroll_lines(-1)", show=False),
    ]

    def __init__(
        self, title: str, content: Page, snapshot: Snapshot, finding: Finding | None = None
    ) -> None:
        super().__init__()
        self._heading, self._content, self.finding = title, content, finding
        self._snapshot, self._is_ready = snapshot, False

    def compose(self) -> ComposeResult:
        """The title, the content and the keys."""
        yield Static(Text(self._heading, "bold"), id="page-title")
        with VerticalScroll(id="page"):
            yield Static(id="content")
        yield KeyLine()

    def on_mount(self) -> None:
        """Show the content."""
        self._is_ready = True
        self.show(self._snapshot)
        self.query_one("#page").focus()

    def show(self, snapshot: Snapshot) -> None:
        """Show the state of the run; if the subject is gone, keep the content and say so."""
        self._snapshot = snapshot
        if not self._is_ready or not self.query("#content"):  # not built yet, or being closed
            return
        content = self._content(snapshot)
        if content:
            self.query_one("#content", Static).update(Group(*content))
        else:
            gone = Text.assemble(
                (self._heading, "bold"), ("  no longer part of this run", "yellow")
            )
            self.query_one("#page-title", Static).update(gone)

    def action_copy(self) -> None:
        """Copy the settings of the finding's first fix."""
        lines = settings_of(self.finding, self._snapshot.report) if self.finding else []
        if not lines:
            self.notify("This page has no settings to copy.", markup=False)
            return
        self.app.copy_to_clipboard("\n".join(lines))
        self.notify(f"Sent to the terminal's clipboard: {'; '.join(lines)}", markup=False)

    def action_scroll_lines(self, lines: int) -> None:
        """Scroll the page by some lines."""
        self.query_one("#page").scroll_relative(y=lines, animate=False)


class HelpPage(ContentPage):
    """The keys.

    Args:
        snapshot: the state of the run.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__("Keys", lambda _: (_keys(),), snapshot)


def _keys() -> RenderableType:
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key, text in KEYS:
        table.add_row(key, text)
    return table


class ProposalDialog(ModalScreen[str]):
    """Asks whether a proposed treatment is to be applied. Returns `approve`, `decline` or "".

    Args:
        proposal: the treatment.
        snapshot: the state of the run.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a,enter", "answer('approve')", "Approve", key_display="a"),
        Binding("d", "answer('decline')", "Decline"),
        Binding("escape,backspace", "answer('')", "Later", key_display="Esc"),
    ]

    def __init__(self, proposal: Treatment, snapshot: Snapshot) -> None:
        super().__init__()
        self._proposal, self._snapshot = proposal, snapshot

    def compose(self) -> ComposeResult:
        """The proposal and the keys."""
        with VerticalScroll(id="dialog"):
            yield Static(Group(*proposal_page(self._proposal, self._snapshot)))
        yield KeyLine()

    def action_answer(self, answer: str) -> None:
        """Close with an answer."""
        self.dismiss(answer)
