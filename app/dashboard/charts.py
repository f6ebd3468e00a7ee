"""Charts of reports as Streamlit elements, with their content in words."""

from __future__ import annotations

import streamlit as st

from grpodoctor.report.view import Chart
from grpodoctor.support.safe_text import markdown

from .blocks import PLOT_CONFIG


def show_chart(chart: Chart, key: str) -> None:
    """Draw a chart, and its content in words below it.

    Args:
        chart: the chart; its caption is left to the caller.
        key: name of the element, the same in each drawing of the page.
    """
    st.plotly_chart(chart.figure, theme=None, key=key, config=PLOT_CONFIG)
    st.caption(markdown(chart.words))
