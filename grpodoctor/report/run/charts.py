"""The pictures of a report: the course of the vital metrics, with onsets and treatments marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from grpodoctor.monitor.chart_specs import CHARTS, ChartSpec, Color, Curve
from grpodoctor.monitor.downsampled_series import SeriesByMetric
from grpodoctor.monitor.report import Report
from grpodoctor.support.safe_text import html

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLORS: dict[Color, str] = {
    "blue": "#3f83d6",
    "green": "#2e9e6b",
    "red": "#d9534f",
    "violet": "#8e6bd1",
    "amber": "#c98a1b",
    "gray": "#8a8f98",
}
BLUE, GREEN, RED, VIOLET, AMBER, GREY = COLORS.values()
SEVERITY_COLOURS = {"critical": RED, "warning": AMBER, "info": BLUE}

_LABEL_ROWS = 6
_ROW_PIXELS = 13
_LEAN = 0.65
"""Share of the picture beyond which labels stand to the left of their line."""
_LETTER_WIDTH = 0.013
"""Width of a letter of a label, as a share of the picture's."""

_LOG_RATIO = 100.0
_GRID = "rgba(128,128,128,0.22)"


@dataclass(frozen=True, slots=True)
class _Marker:
    step: int
    label: str
    colour: str
    dash: str
    metrics: frozenset[str] | None
    """What it rests on, which decides where it is labelled; None belongs to every picture."""


def figures(
    report: Report, series: SeriesByMetric, beside: tuple[str, SeriesByMetric] | None = None
) -> list[tuple[str, Figure]]:
    """Title and figure of every picture that has something to show.

    Args:
        report: its findings and treatments are marked.
        series: the courses to draw.
        beside: label and courses of a second run, drawn in grey.
    """
    markers = _markers(report)
    drawn = []
    for picture in CHARTS:
        courses = _courses(picture.curves, series) or _courses(picture.fallback, series)
        if courses:
            others = _others(picture, beside)
            drawn.append((picture.title, _figure(picture, courses + others, markers)))
    return drawn


_Course = tuple[Curve, list[int], list[float]]


def _courses(curves: Sequence[Curve], series: SeriesByMetric) -> list[_Course]:
    courses = []
    for curve in curves:
        points = [point for point in series.points(curve.metric) if math.isfinite(point[1])]
        if points:
            courses.append((curve, [step for step, _ in points], [value for _, value in points]))
    return courses


def _others(picture: ChartSpec, beside: tuple[str, SeriesByMetric] | None) -> list[_Course]:
    """The curves of a second run, in grey; a stack cannot be compared in one picture."""
    if beside is None or picture.stacked:
        return []
    label, series = beside
    curves = [
        replace(
            curve,
            label=f"{curve.label}, {html(label, limit=40)}",
            color="gray",
            dash="dash" if curve.dash == "solid" else curve.dash,
        )
        for curve in picture.curves
        if curve.compared
    ]
    return _courses(curves, series)


def _markers(report: Report) -> list[_Marker]:
    onsets = [
        _Marker(
            each.onset_step,
            each.code,
            SEVERITY_COLOURS[each.severity],
            "dot",
            frozenset(evidence.metric for evidence in each.evidence),
        )
        for each in report.findings
    ]
    acts = [
        _Marker(each.step, f"{each.remedy} {each.kind}", GREEN, "solid", None)
        for each in report.treatments
        if each.kind in {"applied", "kept", "undone"}
    ]
    return sorted(onsets + acts, key=lambda marker: marker.step)


def _figure(picture: ChartSpec, courses: list[_Course], markers: list[_Marker]) -> Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    for curve, steps, values in courses:
        figure.add_trace(_trace(curve, steps, values, stacked=picture.stacked))
    metrics = {curve.metric for curve, _, _ in courses}
    marked = [each for each in markers if each.metrics is None or metrics & each.metrics]
    last_step = max(steps[-1] for _, steps, _ in courses)
    rows = _label_rows(marked, last_step)
    figure.update_layout(
        **_layout(picture, courses, label_rows=max(rows, default=0) + 1),
        shapes=[_line(marker, bold=marker in marked) for marker in markers],
        annotations=[
            _label(marker, row, "right" if _leans_left(marker, last_step) else "left")
            for marker, row in zip(marked, rows, strict=True)
        ],
    )
    return figure


def _label_rows(markers: list[_Marker], last_step: int) -> list[int]:
    """A row above the picture for each label, so that neighbours do not overlap."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(_LABEL_ROWS)]
    rows = []
    for marker in markers:
        width = max(1, last_step) * _LETTER_WIDTH * (len(marker.label) + 2)
        start = marker.step - width if _leans_left(marker, last_step) else float(marker.step)
        span = (start, start + width)
        free = (row for row, spans in enumerate(taken) if not any(_overlap(span, e) for e in spans))
        row = next(free, _LABEL_ROWS - 1)
        taken[row].append(span)
        rows.append(row)
    return rows


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _leans_left(marker: _Marker, last_step: int) -> bool:
    return marker.step > _LEAN * last_step


def _line(marker: _Marker, *, bold: bool) -> dict[str, Any]:
    return {
        "type": "line",
        "x0": marker.step,
        "x1": marker.step,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "opacity": 0.9 if bold else 0.3,
        "line": {"color": marker.colour, "width": 1.4, "dash": marker.dash},
    }


def _trace(curve: Curve, steps: list[int], values: list[float], *, stacked: bool) -> Any:
    import plotly.graph_objects as go

    sparse = len(steps) < 40
    return go.Scatter(
        x=steps,
        y=values,
        name=curve.label,
        mode="lines+markers" if sparse and not stacked else "lines",
        marker={"size": 4, "color": COLORS[curve.color]},
        line={"color": COLORS[curve.color], "dash": curve.dash, "width": 0.6 if stacked else 1.8},
        stackgroup="parts" if stacked else None,
        hovertemplate="step %{x}: %{y:.4g}<extra>" + curve.label + "</extra>",
    )


def _layout(picture: ChartSpec, courses: list[_Course], *, label_rows: int) -> dict[str, Any]:
    values = [value for _, _, course in courses for value in course]
    wide = min(values) > 0 and max(values) / min(values) > _LOG_RATIO and not picture.stacked
    clear = "rgba(0,0,0,0)"
    axis = {"gridcolor": _GRID, "zeroline": False, "linecolor": _GRID}
    return {
        "template": "none",
        "height": 280 + _ROW_PIXELS * label_rows,
        "margin": {"l": 58, "r": 16, "t": 8 + _ROW_PIXELS * label_rows, "b": 64},
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "font": {"size": 12, "color": GREY, "family": "system-ui, sans-serif"},
        "legend": {"orientation": "h", "y": -0.22, "x": 0, "yanchor": "top"},
        "showlegend": len(courses) > 1,
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": "#22262e", "font": {"color": "#f2f3f5"}},
        "xaxis": {
            **axis,
            "title": {"text": "step", "standoff": 4},
            "range": [
                min(steps[0] for _, steps, _ in courses),
                max(steps[-1] for _, steps, _ in courses),
            ],
        },
        "yaxis": {
            **axis,
            "title": {"text": picture.unit + (", logarithmic" if wide else ""), "standoff": 8},
            "type": "log" if wide else "linear",
            "rangemode": "normal" if wide or min(values) < 0 else "tozero",
        },
    }


def _label(marker: _Marker, row: int, side: str) -> dict[str, Any]:
    return {
        "x": marker.step,
        "y": 1.0,
        "yref": "paper",
        "yanchor": "bottom",
        "yshift": _ROW_PIXELS * row,
        "xanchor": side,
        "text": html(marker.label, limit=32),
        "showarrow": False,
        "font": {"size": 10, "color": marker.colour},
    }
