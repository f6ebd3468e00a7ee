"""Choosing a run from a list on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_urlsafe
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, OptionList

from grpodoctor.cli.watch_screen.entries import shown_path, written_ago
from grpodoctor.cli.watch_screen.key_line import KeyLine, redraw_after_suspension
from grpodoctor.cli.watch_screen.panes import Entry, Pane
from grpodoctor.monitor.dashboard.run_summary import RunSummary
from grpodoctor.monitor.dashboard.run_table import RunTable
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.report.dashboard.run_rows import badness_rank, verdict_word
from grpodoctor.runs.reading.nearby_runs import NearbyRun

_REFRESH_SECONDS = 0.3
_VERDICT_LETTERS = 12
_VERDICT_STYLES = {"sick": "red", "unreadable": "yellow", "healthy": "green", "solved": "green"}


class RunChoice(App[Path]):
    """Shows runs, worst first; exits with the chosen one, or with None.

    Another process examines the runs meanwhile. Until then they are ordered by their latest write.

    Args:
        runs: the runs.
        folder: where they were found; their paths are shown relative to it.
    """

    CSS_PATH = "watch.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority, the keys that are typed right after it go to the field.
        Binding("slash", "filter", "Filter", key_display="/", priority=True),
        Binding("q,ctrl+c,escape", "quit", "Quit", key_display="q"),
        Binding("ctrl+z", "suspend_process", key_display="Ctrl-Z", show=False),
    ]

    def __init__(self, runs: Sequence[NearbyRun], folder: Path) -> None:
        super().__init__()
        self._runs, self._folder = tuple(runs), folder
        paths = tuple(run.path for run in runs)
        self._table = RunTable(DashboardSettings(token=token_urlsafe(), paths=paths))

    def compose(self) -> ComposeResult:
        """The list and the keys."""
        yield Pane("Runs", id="runs")
        yield Input(placeholder="filter", id="filter")
        yield KeyLine()

    def on_mount(self) -> None:
        """Show the runs."""
        redraw_after_suspension(self)
        self.query_one("#filter").display = False
        self._show({})
        self.query_one("#runs", Pane).focus()
        self.set_interval(_REFRESH_SECONDS, self._update)

    def on_unmount(self) -> None:
        """End the examination."""
        self._table.close()

    def _update(self) -> None:
        rows = [row for row in self._table.refresh() if row.summary is not None]
        self._show(
            {run.path: row.summary for run in self._runs for row in rows
             if row.path.is_relative_to(run.path) and row.summary}
        )  # fmt: skip

    def _show(self, summaries: Mapping[Path, RunSummary]) -> None:
        ordered = sorted(self._runs, key=lambda run: badness_rank(summaries.get(run.path)))
        entries = [_entry(run, self._folder, summaries.get(run.path)) for run in ordered]
        left = len(self._runs) - len(summaries)
        counts = f"{left} to be examined" if left else "worst first"
        self.query_one("#runs", Pane).show(entries, f"{counts}; Enter watches one")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Let the field take a slash."""
        return action != "filter" or not isinstance(self.focused, Input)

    def on_option_list_option_selected(self, _: OptionList.OptionSelected) -> None:
        """Watch the run."""
        entry = self.query_one("#runs", Pane).chosen
        if entry is not None:
            self.exit(Path(entry.id))

    def action_filter(self) -> None:
        """Type a filter."""
        field = self.query_one("#filter", Input)
        field.display = True
        self.screen.set_focus(field)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the filter."""
        self.query_one("#runs", Pane).filter(event.value.strip())

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Return to the list."""
        self.screen.set_focus(self.query_one("#runs", Pane))


def _entry(run: NearbyRun, folder: Path, summary: RunSummary | None) -> Entry:
    path = shown_path(run.path, folder)
    verdict, finding = verdict_word(summary), summary.finding if summary else ""
    written_at = max(run.written_at, summary.written if summary else 0.0)
    style = _VERDICT_STYLES.get(summary.verdict, "") if summary else "dim"
    text = Text.assemble(
        (f"{verdict:<{_VERDICT_LETTERS}}  ", style),
        (path, "bold"),
        *([f"  {finding}"] if finding else []),
        (f"  {written_ago(written_at)}", "dim"),
    )
    return Entry(str(run.path), text, f"{path} {verdict} {finding}")
