"""Colors and layout that all charts share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from grpodoctor.monitor.chart_specs import Color
from grpodoctor.support.safe_text import html

COLORS: dict[Color, str] = {
    "blue": "#4695cb",
    "green": "#03a872",
    "red": "#b74a37",
    "violet": "#ba46fe",
    "amber": "#c68218",
    "gray": "#686c75",
}
"""Colors that stand out on light and dark pages, and from each other for color-blind readers; the
test computes both."""

ThemeName = Literal["light", "dark", "any"]


@dataclass(frozen=True, slots=True)
class Theme:
    """The colors of text and lines around the curves."""

    text: str
    grid: str
    hover: str
    """Background of the box next to the mouse pointer."""
    hover_text: str
    paper: str
    """Behind labels that lie on a curve; empty if the background is not known."""


THEMES: dict[ThemeName, Theme] = {
    "light": Theme("#4d5460", "rgba(29,33,41,0.13)", "#ffffff", "#1d2129", "#ffffff"),
    "dark": Theme("#b9c0cc", "rgba(230,232,236,0.15)", "#262a32", "#e6e8ec", "#0e1117"),
    "any": Theme("#80858f", "rgba(128,128,128,0.22)", "#22262e", "#f2f3f5", ""),
}
"""`any` is readable on light and dark pages."""

_CLEAR = "rgba(0,0,0,0)"


def layout(
    x_title: str, y_title: str, *, height: int = 300, theme: ThemeName = "any"
) -> dict[str, Any]:
    """A plotly layout for one chart."""
    return {
        **frame(theme, height=height),
        "margin": {"l": 58, "r": 16, "t": 12, "b": 56},
        "xaxis": {**axis(theme), "title": {"text": x_title, "standoff": 6}},
        "yaxis": {**axis(theme), "title": {"text": y_title, "standoff": 6}},
    }


def frame(theme: ThemeName, *, height: int) -> dict[str, Any]:
    """The part of a layout that belongs to no axis."""
    colors = THEMES[theme]
    return {
        "template": "none",
        "height": height,
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "font": {"size": 12, "color": colors.text, "family": "system-ui, sans-serif"},
        "showlegend": False,
        "hoverlabel": {"bgcolor": colors.hover, "font": {"color": colors.hover_text}},
        "modebar": {"bgcolor": _CLEAR, "color": COLORS["gray"], "activecolor": colors.text},
    }


def axis(theme: ThemeName) -> dict[str, Any]:
    """An axis without title."""
    grid = THEMES[theme].grid
    return {"gridcolor": grid, "zeroline": False, "linecolor": grid}


def value_axis(theme: ThemeName, *, is_share: bool = False) -> dict[str, Any]:
    """An axis of values, without title: percentages for shares, and powers of ten, not `µ`."""
    percent = {"tickformat": "~%"} if is_share else {}
    return {**axis(theme), "exponentformat": "power", **percent}


def label(text: str, *, limit: int | None = None) -> str:
    """Text for a label in a chart; plotly reads labels as HTML."""
    return html(text, limit=limit)
