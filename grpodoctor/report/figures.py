"""Colors and layout that all charts share."""

from __future__ import annotations

from typing import Any

from grpodoctor.monitor.chart_specs import Color
from grpodoctor.support.safe_text import html

COLORS: dict[Color, str] = {
    "blue": "#3f83d6",
    "green": "#2e9e6b",
    "red": "#d9534f",
    "violet": "#8e6bd1",
    "amber": "#c98a1b",
    "gray": "#8a8f98",
}

_GRID_LINES = "rgba(128,128,128,0.22)"
_CLEAR = "rgba(0,0,0,0)"


def layout(x_title: str, y_title: str, *, height: int = 300) -> dict[str, Any]:
    """A plotly layout that is readable on light and dark pages."""
    axis = {"gridcolor": _GRID_LINES, "zeroline": False, "linecolor": _GRID_LINES}
    return {
        "template": "none",
        "height": height,
        "margin": {"l": 58, "r": 16, "t": 12, "b": 56},
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "font": {"size": 12, "color": COLORS["gray"], "family": "system-ui, sans-serif"},
        "showlegend": False,
        "hoverlabel": {"bgcolor": "#22262e", "font": {"color": "#f2f3f5"}},
        "xaxis": {**axis, "title": {"text": x_title, "standoff": 6}},
        "yaxis": {**axis, "title": {"text": y_title, "standoff": 6}},
    }


def label(text: str, *, limit: int | None = None) -> str:
    """Text for a label in a chart; plotly reads labels as HTML."""
    return html(text, limit=limit)
