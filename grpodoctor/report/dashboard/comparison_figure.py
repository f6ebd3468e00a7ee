"""Charts of several runs, aligned by step or by generated tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grpodoctor.monitor.chart_specs import Color
from grpodoctor.monitor.dashboard.divergence import Axis, Divergence
from grpodoctor.monitor.dashboard.step_means import COMPARED, MeanSeries, RunMeans
from grpodoctor.report.figures import COLORS, THEMES, ThemeName, label, layout
from grpodoctor.vocabulary.metrics import metric_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_RUN_STYLES: tuple[tuple[Color, str], ...] = (
    ("blue", "solid"),
    ("amber", "dash"),
    ("green", "dot"),
    ("violet", "dashdot"),
    ("red", "longdash"),
    ("gray", "solid"),
)
"""Color and dash of each run: runs differ in both, so colors are not needed."""
MOST_RUNS = len(_RUN_STYLES)

_AXIS_TITLES: Mapping[Axis, str] = {"step": "step", "tokens": "generated tokens"}
_NO_UNIT = "1"
_HEIGHT = 260
_LABEL_LETTERS = 40


def comparable_metrics(runs: Sequence[RunMeans]) -> list[tuple[str, str]]:
    """Label and metric of what at least two of the runs have, the outcome first."""
    return [
        (title, metric)
        for title, metric in COMPARED
        if sum(metric in run.series for run in runs) > 1
    ]


def comparison_figure(
    metric: str,
    runs: Mapping[str, RunMeans],
    axis: Axis,
    theme: ThemeName,
    diverging: Sequence[Divergence] = (),
) -> Figure:
    """One metric of several runs.

    Args:
        metric: the metric.
        runs: the runs by name, in the order of their colors.
        axis: what they are aligned by.
        theme: colors of text and grid.
        diverging: comparisons with the first run; the points where they diverge are marked.
    """
    import plotly.graph_objects as go

    row = metric_of(metric)
    unit = row.unit if row and row.unit != _NO_UNIT else ""
    base = layout(_AXIS_TITLES[axis], unit, height=_HEIGHT, theme=theme)
    figure = go.Figure(layout={**base, "uirevision": axis, "hovermode": "x unified"})
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.18, "x": 0})
    for (name, run), (color, dash) in zip(runs.items(), _RUN_STYLES, strict=False):
        if metric in run.series:
            figure.add_trace(_trace(name, run.series[metric], axis, color, dash))
    for each in diverging:
        if each.metric == metric and each.at is not None:
            line = {"color": THEMES[theme].text, "dash": "dot", "width": 1.5}
            figure.add_vline(x=each.at, line=line)
    return figure


def _trace(name: str, series: MeanSeries, axis: Axis, color: Color, dash: str) -> dict[str, Any]:
    places = series.steps if axis == "step" else series.tokens
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(places),
        "y": list(series.means),
        "name": label(name, limit=_LABEL_LETTERS),
        "line": {"color": COLORS[color], "dash": dash, "width": 1.8},
    }
