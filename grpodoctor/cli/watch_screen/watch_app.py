"""The interactive screen of `grpodoctor watch`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.widgets import Input, OptionList, Static

from grpodoctor.cli.watch_screen.entries import Heading, VerdictLines
from grpodoctor.cli.watch_screen.key_line import KeyLine, redraw_after_suspension
from grpodoctor.cli.watch_screen.page_content import first_action, report_page, settings_of
from grpodoctor.cli.watch_screen.pages import ContentPage, HelpPage, ProposalDialog
from grpodoctor.cli.watch_screen.panes import (
    Pane,
    SkippedPane,
    VitalsPane,
    show_findings,
    show_skipped,
    show_treatment,
    show_vitals,
)
from grpodoctor.cli.watch_screen.run_reader import RunReader, WatchState

if TYPE_CHECKING:
    from textual import events

    from grpodoctor.monitor.session import Session
    from grpodoctor.monitor.snapshot import Snapshot

_HIGH = 24
"""Lines from which three lines of the verdict and its first setting are shown; a lower terminal
shows one line of the verdict."""
_VERDICT_LINES = 3
REFRESH_SECONDS = 0.1
"""How often the screen looks for a new state."""


class WatchApp(App[None]):
    """Shows what a reader has read, and takes keys.

    Args:
        reader: follows the run in its own thread.
        save: writes a report of the session as HTML and returns a sentence about it.
    """

    CSS_PATH = "watch.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide"), (170, "-widest")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit", key_display="q", priority=False),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("a", "approve", "Approve"),
        # With priority, the keys that are typed right after it go to the field.
        Binding("slash", "filter", "Filter", key_display="/", priority=True),
        Binding("space", "pause", "Pause", key_display="Space"),
        Binding("y", "copy", "Copy fix"),
        Binding("r", "report", "Report"),
        Binding("s", "save", "Save HTML"),
        Binding("escape", "clear_filter", show=False),
        Binding("ctrl+z", "suspend_process", key_display="Ctrl-Z", show=False),
    ]

    def __init__(self, reader: RunReader, save: Callable[[Session], str]) -> None:
        super().__init__()
        self._reader, self._save = reader, save
        self._shown = reader.state
        self._heading = Static(id="heading")
        self._is_paused = False
        self.defect: Exception | None = None
        """An error in the screen itself, which ended it."""

    def _handle_exception(self, error: Exception) -> None:
        """Leave the screen; textual would print a traceback of many screens."""
        self.defect = self.defect or error
        self.exit()

    @property
    def snapshot(self) -> Snapshot:
        """The state on the screen."""
        return self._shown.snapshot

    def compose(self) -> ComposeResult:
        """The panes, the filter and the keys."""
        yield self._heading
        yield Static(id="verdict")
        with Container(id="panes"):
            yield Pane("Findings", id="findings")
            yield VitalsPane("Vitals", id="vitals")
            with VerticalScroll(id="detail", can_focus=False):
                yield Static(id="detail-content")
            yield Pane("Treatment", id="treatment")
            yield SkippedPane("Skipped", id="skipped")
        yield Input(placeholder="filter; Enter keeps it, Esc removes it", id="filter")
        yield KeyLine()

    def on_mount(self) -> None:
        """Show the first state, and start to follow."""
        self.begin_capture_print(self)
        redraw_after_suspension(self)
        self.query_one("#filter").display = False
        self._show(self._reader.state)
        self.query_one("#findings").focus()
        self._reader.start()
        self.set_interval(REFRESH_SECONDS, self._follow)

    def _follow(self) -> None:
        if not self._heading.is_attached:  # the screen is being left
            return
        while self._reader.notices:
            notice = self._reader.notices.popleft()
            self.notify(notice.text, severity=notice.severity, markup=False)
        if self._reader.is_done:
            self.exit()
        elif self._reader.state.version != self._shown.version and not self._is_paused:
            self._show(self._reader.state)

    def _show(self, state: WatchState) -> None:
        self._shown = state
        self._show_heading()
        snapshot = state.snapshot
        main = self.screen_stack[0]
        main.query_one("#verdict", Static).update(self._verdict())
        show_findings(main.query_one("#findings", Pane), snapshot)
        show_vitals(main.query_one("#vitals", Pane), snapshot)
        show_treatment(main.query_one("#treatment", Pane), snapshot)
        show_skipped(main.query_one("#skipped", Pane), snapshot)
        self._show_detail()
        for page in self.screen_stack[1:]:
            if isinstance(page, ContentPage):
                page.show(snapshot)

    def _verdict(self) -> VerdictLines:
        lines = _VERDICT_LINES if self.size.height >= _HIGH else 1
        action = first_action(self.snapshot.report) if lines > 1 else ""
        return VerdictLines(self.snapshot, lines, self._shown.has_backlog, action)

    def on_resize(self) -> None:
        """A low terminal has less of the verdict."""
        self.screen_stack[0].query_one("#verdict", Static).update(self._verdict())
        self.call_after_refresh(self._show_detail)

    def _show_heading(self) -> None:
        self._heading.update(
            Heading(self.snapshot, has_backlog=self._shown.has_backlog, is_paused=self._is_paused)
        )

    def _show_detail(self) -> None:
        """Show the highlighted finding next to the panes of a very wide terminal."""
        from rich.console import Group

        main = self.screen_stack[0]
        if not main.has_class("-widest"):
            return
        entry = main.query_one("#findings", Pane).chosen
        content = entry.page(self.snapshot) if entry and entry.page else ()
        text = Group(*content) if content else Text("")
        main.query_one("#detail-content", Static).update(text)

    def on_option_list_option_highlighted(self, _: OptionList.OptionHighlighted) -> None:
        """Another finding is highlighted."""
        self._show_detail()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the page of an entry."""
        pane = event.option_list
        entry = pane.chosen if isinstance(pane, Pane) else None
        if entry is not None and entry.page is not None:
            self.push_screen(ContentPage(entry.title, entry.page, self.snapshot, entry.finding))

    def action_close_page(self) -> None:
        """Close the page."""
        if len(self.screen_stack) > 1:
            self.pop_screen()

    def action_help(self) -> None:
        """Show the keys."""
        if not isinstance(self.screen, HelpPage):
            self.push_screen(HelpPage(self.snapshot))

    def action_report(self) -> None:
        """Show the whole report."""
        self.push_screen(ContentPage("Report", report_page, self.snapshot))

    def action_pause(self) -> None:
        """Freeze the display, or show the latest state again."""
        self._is_paused = not self._is_paused
        if self._is_paused:
            self._show_heading()
        else:
            self._show(self._reader.state)

    def action_save(self) -> None:
        """Write a report as HTML."""
        self.notify("Writing the report …", timeout=2)
        self._reader.submit(self._save)

    def action_copy(self) -> None:
        """Copy the settings of the highlighted finding's first fix."""
        if isinstance(self.screen, ContentPage):
            self.screen.action_copy()
            return
        entry = self.query_one("#findings", Pane).chosen
        finding = entry.finding if entry else None
        lines = settings_of(finding, self.snapshot.report) if finding else []
        if lines:
            self.copy_to_clipboard("\n".join(lines))
        said = f"Sent to the terminal's clipboard: {'; '.join(lines)}"
        self.notify(said if lines else "This finding has no settings to copy.", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Offer approval only with `--apply ask`, and the filter only where the panes are."""
        if action == "approve":
            return self.snapshot.apply == "ask"
        if action == "filter" and isinstance(self.focused, Input):
            return False  # the field takes a slash
        if action in {"filter", "clear_filter"}:
            return len(self.screen_stack) == 1
        return True

    def action_approve(self) -> None:
        """Show the proposed treatment and ask."""
        proposal = self.snapshot.proposal
        if proposal is None:
            self.notify("No treatment is proposed now.")
            return

        def answered(answer: str | None) -> None:
            if answer == "approve":
                self._reader.submit(lambda session: _approve(session, proposal.id))
            elif answer == "decline":
                self._reader.submit(lambda session: _decline(session, proposal.id))

        if not isinstance(self.screen, ProposalDialog):
            self.push_screen(ProposalDialog(proposal, self.snapshot), answered)

    def action_filter(self) -> None:
        """Type a filter."""
        field = self.query_one("#filter", Input)
        field.display = True
        self.screen.set_focus(field)

    def action_clear_filter(self) -> None:
        """Remove the filter."""
        field = self.query_one("#filter", Input)
        field.value = ""
        self._leave_filter(field)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the filter while it is typed."""
        for pane in self.query(Pane):
            pane.filter(event.value.strip())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter."""
        self._leave_filter(event.input)

    def _leave_filter(self, field: Input) -> None:
        field.display = bool(field.value)
        self.screen.set_focus(self.query_one("#findings"))

    def on_print(self, event: events.Print) -> None:
        """Show what other parts print, such as warnings of alert channels."""
        if text := event.text.strip():
            self.notify(text, severity="warning", markup=False)


def _approve(session: Session, treatment_id: str) -> str:
    session.approve(treatment_id)
    return "The treatment is requested; the run answers between two steps."


def _decline(session: Session, treatment_id: str) -> str:
    session.decline(treatment_id)
    return "Declined; this remedy is not proposed again."


def snapshot_path(run: str, step: int | None) -> Path:
    """Where `s` writes the report of a run."""
    name = "".join(char if char.isalnum() or char in "-_." else "-" for char in Path(run).name)
    suffix = "" if step is None else f"-step-{step}"
    return Path(f"grpodoctor-{name[:80] or 'run'}{suffix}.html")
