"""The page Runs: all runs of the command line, the worst first."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from grpodoctor.monitor.dashboard.probe_files import probe_files
from grpodoctor.monitor.dashboard.run_table import RunRow
from grpodoctor.report.dashboard.run_rows import (
    progress_phrase,
    run_columns,
    sorted_rows,
    verdict_counts,
)
from grpodoctor.support.numbers import count_of

from ..context import AWAITS_SEARCH, PageContext
from ..sections import empty, section

_REFRESH_SECONDS = 2.0
_SEARCH_SECONDS = 2.0
_PROBE_SECONDS = 20.0
"""Time between two searches for probe reports."""
_ROW_PIXELS = 35
_MOST_ROWS_SHOWN = 18


def page(context: PageContext) -> None:
    """Draw the page."""
    st.title("Runs")

    @st.fragment(run_every=_REFRESH_SECONDS)
    def part() -> None:
        with section():
            _table(context)

    part()
    with section():
        _probes(context)


def _probes(context: PageContext) -> None:
    """A link to the probe reports, which are no runs."""
    count = _probe_count(context.settings.paths)
    if count:
        label = f"{count_of(count, 'probe report')}, on the page Mismatch"
        st.page_link(st.session_state["pages"]["mismatch"], label=label, icon=":material/science:")


@st.cache_data(ttl=_PROBE_SECONDS, show_spinner=False)
def _probe_count(paths: tuple[Path, ...]) -> int:
    return len(probe_files(paths))


def _table(context: PageContext) -> None:
    rows = context.table.refresh(_SEARCH_SECONDS)
    if context.table.is_searched and st.session_state.pop(AWAITS_SEARCH, False):
        st.rerun()  # the only run is shown at once
    if not rows and not context.table.is_searched:
        st.skeleton(height=300)
        st.caption("Searching for runs …")
        return
    if not rows:
        empty("No run was found at the paths of the command line. New runs appear here.")
        return
    shown = sorted_rows(rows)
    counts = verdict_counts(shown)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{progress_phrase(shown)}**")
        for verdict, count in counts:
            st.badge(f"{count} {verdict}", color=_COLORS.get(verdict, "gray"))  # type: ignore[arg-type]
    _draw(context, shown)


_COLORS = {"sick": "red", "unreadable": "orange", "healthy": "green", "solved": "green"}


def _draw(context: PageContext, rows: list[RunRow]) -> None:
    event = st.dataframe(
        run_columns(rows),
        hide_index=True,
        height=_ROW_PIXELS * (min(len(rows), _MOST_ROWS_SHOWN) + 1) + 3,
        key="runs-table",
        on_select="rerun",
        selection_mode="single-row",
        placeholder="",
        alt="The runs with verdict, reward curve, worst finding and cost, the worst first.",
        column_config={
            "Run": st.column_config.TextColumn(width=180, pinned=True),
            "Verdict": st.column_config.TextColumn(width=95),
            "Reward": st.column_config.LineChartColumn(width=90, help="Mean reward over the run"),
            "Worst finding": st.column_config.TextColumn(width=225),
            "Since": st.column_config.NumberColumn(
                width=60, help="Step at which the worst finding began"
            ),
            "Cost so far": st.column_config.TextColumn(
                width=130, help="Cost of the run since the onset of the worst finding"
            ),
            "Last step": st.column_config.NumberColumn(width=75),
            "Framework": st.column_config.TextColumn(width=90),
            "Written": st.column_config.DatetimeColumn(format="distance", width=115),
            "Diagnosis": st.column_config.TextColumn(width="large"),
        },
    )
    st.caption("Select a row to open the run. Click a column to sort.")
    chosen = event["selection"]["rows"]
    if chosen and chosen[0] < len(rows):
        context.go(
            "overview", run=rows[chosen[0]].key, finding="", sequence="", steps="", zoom="", step=""
        )
