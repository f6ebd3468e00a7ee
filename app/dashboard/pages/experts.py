"""The page Experts: how a mixture of experts routes, layer by layer."""

from __future__ import annotations

import streamlit as st

from grpodoctor.report.dashboard.part_figures import margin_chart, part_heat_map

from ..charts import show_chart
from ..context import PageContext
from ..sections import empty, section

_MAPS = (
    ("experts/churn_update", "Experts that change with the update", True),
    ("experts/churn_engine", "Experts that differ between sampler and learner", True),
    ("experts/load_max_over_mean", "Load of the busiest expert over the mean load", True),
    ("experts/router_entropy", "Entropy of the router, nats", False),
    ("experts/router_margin", "Margin of the router, logits", False),
)
"""Metric, title, and whether high values are the ones to see."""


def page(context: PageContext) -> None:
    """Draw the page."""
    st.title("Experts")
    context.live(_draw)


def _draw(context: PageContext) -> None:
    series = context.data.series
    shown = False
    for metric, title, is_extreme_high in _MAPS:
        parts = series.parts(metric, "layer")
        chart = part_heat_map(title, parts, "layer", context.theme, is_extreme_high=is_extreme_high)
        if chart is not None:
            shown = True
            with section(title):
                show_chart(chart, f"experts-{metric}")
    with section():
        margins = series.parts("experts/router_margin", "layer")
        for flips in ("experts/churn_engine", "experts/churn_update"):
            chart = margin_chart(series.parts(flips, "layer"), margins, context.theme)
            if chart is not None:
                st.subheader(chart.caption)
                show_chart(chart, "experts-margin")
                break
    if not shown:
        _explain_absence(context)


def _explain_absence(context: PageContext) -> None:
    why = [vital.why_not for vital in context.data.vitals if vital.metric.startswith("experts/")]
    empty(
        why[0]
        if why and why[0]
        else "This run logs nothing about experts by layer. The recorder measures them for "
        "mixture-of-experts models; `grpodoctor.RouterWatch` does so in any torch loop.",
        ":material/hub:",
    )
