"""Choosing a run from a list on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, OptionList

from grpodoctor.cli.watch_screen.entries import shown_path, written_ago
from grpodoctor.cli.watch_screen.panes import Entry, Pane
from grpodoctor.runs.reading.nearby_runs import NearbyRun


class RunChoice(App[Path]):
    """Shows runs; exits with the chosen one, or with None.

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

    def compose(self) -> ComposeResult:
        """The list and the keys."""
        yield Pane("Runs", id="runs")
        yield Input(placeholder="filter", id="filter")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Show the runs."""
        self.query_one("#filter").display = False
        pane = self.query_one("#runs", Pane)
        pane.show(
            [_entry(run, self._folder) for run in self._runs],
            "last written first; Enter watches one",
        )
        pane.focus()

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


def _entry(run: NearbyRun, folder: Path) -> Entry:
    path = shown_path(run.path, folder)
    text = Text.assemble((path, "bold"), (f"  {written_ago(run.written_at)}", "dim"))
    return Entry(str(run.path), text, path)
