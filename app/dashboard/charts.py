"""Charts of reports as Streamlit elements, with their content in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from grpodoctor.report.run.charts import panel_figure
from grpodoctor.report.run.panels import Panel
from grpodoctor.report.run.selection import clicked_point
from grpodoctor.report.view import Chart
from grpodoctor.support.safe_text import plain, unlinked

from .blocks import PLOT_CONFIG
from .context import PageContext

_POINT_CLICKS = st.components.v2.component(
    "grpodoctor_point_clicks",
    js=Path(__file__).with_name("point_clicks.js").read_text(encoding="utf-8"),
)


def show_chart(chart: Chart, key: str) -> None:
    """Draw a chart, and its content in words below it.

    Args:
        chart: the chart; its caption is left to the caller.
        key: name of the element, the same in each drawing of the page.
    """
    st.plotly_chart(chart.figure, theme=None, key=key, config=PLOT_CONFIG, alt=plain(chart.words))
    st.caption(unlinked(chart.words))


def show_panels(
    context: PageContext, shown: Sequence[Panel], *, columns: int, key: str, clickable: bool = False
) -> None:
    """Draw panels of a run side by side, each with its title and unit.

    Args:
        context: of the page.
        shown: the panels.
        columns: how many have room; further ones are left out.
        key: beginning of the names of the charts' elements.
        clickable: whether a click in a chart opens what is clicked.
    """
    for column, panel in zip(st.columns(columns), shown, strict=False):
        name = f"{key}-{panel.key}"
        with column:
            is_named = panel.unit.casefold() == panel.title.casefold()
            unit = "" if is_named else f" :gray[{panel.unit}]"
            st.markdown(f"**{panel.title}**{unit}")
            st.plotly_chart(
                panel_figure(panel, theme=context.theme),
                theme=None,
                key=name,
                config=PLOT_CONFIG,
                alt=panel.description,
            )
            if clickable:
                follow_clicks(context, name)


def follow_clicks(context: PageContext, key: str) -> None:
    """Open what a reader clicks in a chart over steps.

    The mark of a finding leads to its page, a point of a worst response to the response. Any other
    point selects its step.

    Args:
        context: of the page.
        key: name of the chart's element.
    """
    clicks = _POINT_CLICKS(
        key=f"{key}-clicks", data={"chart": key}, on_point_change=lambda: None, height=1
    )
    point = clicked_point(clicks.point)
    if point is None:
        return
    if point.finding:
        context.go("finding", finding=point.finding)
    if point.sequence_id:
        context.go("rollouts", sequence=point.sequence_id, step=str(point.step))
    context.select_steps((point.step, point.step))
    st.rerun()
