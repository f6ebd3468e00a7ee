"""What a page gets: the run, the reader's choices, and ways to change them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import streamlit as st

from grpodoctor.errors import RunError
from grpodoctor.monitor.advice import with_alternatives
from grpodoctor.monitor.dashboard.observed_run import ObservedRun, RunView
from grpodoctor.monitor.dashboard.run_table import RunTable
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.report_data import ReportData

from . import url_state

AWAITS_SEARCH = "awaits_search"
"""In the session: the first page is decided when the runs are known."""

Theme = Literal["light", "dark"]

_LIVE_SECONDS = 2.0
_IDLE_SECONDS = 20.0
"""Seconds between two refreshes of a run that grows, and of one that does not."""
_FIRST_WAIT_SECONDS = 1.5
_WAIT_SECONDS = 0.15
"""Longest wait for new steps, when a run is opened and later."""


@st.cache_resource(show_spinner=False)
def run_table(settings_json: str) -> RunTable:
    """The table of runs, which all browsers share."""
    return RunTable(DashboardSettings.model_validate_json(settings_json))


@st.cache_resource(show_spinner=False, max_entries=8)
def observed_run(key: str, settings_json: str) -> ObservedRun:
    """A run under observation, which all browsers share.

    Raises:
        RunError: if the command line names no such run.
    """
    path = run_table(settings_json).path_of(key)
    if path is None:
        raise RunError("no run of this name", where=key[:200], remedy="choose one on the page Runs")
    return ObservedRun(key, path, DashboardSettings.model_validate_json(settings_json))


@dataclass(frozen=True)
class PageContext:
    """The run and the reader's choices, at the moment a page is drawn."""

    settings: DashboardSettings
    settings_json: str
    theme: Theme
    params: Mapping[str, str] = field(default_factory=dict)
    """Query parameters of the address, by name."""
    observed: ObservedRun | None = None
    shown: RunView = field(default_factory=RunView)

    @property
    def run(self) -> ObservedRun:
        """The chosen run.

        Raises:
            RunError: if none is chosen; the shell asks for one before it draws such a page.
        """
        if self.observed is None:
            raise RunError("no run is chosen", remedy="choose one on the page Runs")
        return self.observed

    @property
    def table(self) -> RunTable:
        """All runs of the command line."""
        return run_table(self.settings_json)

    @property
    def view(self) -> RunView:
        """The state of the run when the page was drawn."""
        return self.shown

    @property
    def revision(self) -> int:
        """Grows with each change of the run."""
        return self.shown.revision

    @property
    def data(self) -> ReportData:
        """Everything about the run.

        Raises:
            RunError: if the run has no steps yet.
        """
        if self.shown.data is None:
            raise RunError("the run has no steps yet")
        return self.shown.data

    @property
    def framework(self) -> str | None:
        """The framework that the reader chose for remedies; None for the run's own."""
        return self.params.get("framework") or self.settings.framework

    @property
    def steps(self) -> tuple[int, int] | None:
        """The selected interval of steps."""
        return url_state.interval_of(self.params.get("steps", ""))

    @property
    def zoom(self) -> tuple[int, int] | None:
        """The interval of steps that the charts show; None for the whole run."""
        return url_state.interval_of(self.params.get("zoom", ""))

    @cached_property
    def report(self) -> Report:
        """The report, with remedies in the framework that the reader chose."""
        report, source = self.data.report, self.shown.advice_source
        if source is None or self.framework in (None, source.framework):
            return report
        remedies = {remedy for finding in report.findings for remedy in finding.remedies}
        return replace(report, advice=source.advice(with_alternatives(remedies), self.framework))

    def opened(self, key: str) -> ObservedRun:
        """Another run, by its key."""
        return observed_run(key, self.settings_json)

    def refreshed(self) -> PageContext:
        """The same place with the latest state of the run."""
        wait = _FIRST_WAIT_SECONDS if self.run.view.data is None else _WAIT_SECONDS
        view = self.run.refresh(wait)
        return replace(self, shown=view, params=url_state.params())

    def live(self, draw: Callable[[PageContext], None]) -> None:
        """Draw a part of the page, and again whenever the run may have grown."""
        seconds = _LIVE_SECONDS if self.view.is_growing else _IDLE_SECONDS

        @st.fragment(run_every=seconds)
        def part() -> None:
            draw(self.refreshed())

        part()

    def select_steps(self, steps: tuple[int, int] | None) -> None:
        """Select an interval of steps for all charts and lists."""
        url_state.change(steps=f"{steps[0]}-{steps[1]}" if steps else "")

    def go(self, path: str, **params: str) -> None:
        """Go to another page; parameters that are not named are kept."""
        st.switch_page(st.session_state["pages"][path], query_params=url_state.changed(params))
