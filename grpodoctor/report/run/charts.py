"""The charts of a run: the vital metrics over the steps, with onsets and treatments marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from grpodoctor.monitor.chart_specs import CHARTS, ChartSpec, Curve
from grpodoctor.monitor.downsampled_series import SeriesByMetric
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.report_data import ComparisonRun
from grpodoctor.report.figures import COLORS, label, layout
from grpodoctor.rules.base import Severity

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SEVERITY_COLORS: dict[Severity, str] = {
    "critical": COLORS["red"],
    "warning": COLORS["amber"],
    "info": COLORS["blue"],
}
_LABEL_ROWS = 6
_ROW_PIXELS = 13
_LEFT_LABELS_FROM = 0.65
"""Share of the chart's width from which labels are put to the left of their line."""
_LETTER_WIDTH = 0.013
"""Width of a letter of a label, as a share of the chart's width."""
_LOG_RATIO = 100.0
"""Ratio of the largest to the smallest value from which the axis is logarithmic."""
_SPARSE_STEPS = 40
"""Fewer readings are drawn with markers."""


@dataclass(frozen=True, slots=True)
class _Marker:
    step: int
    label: str
    color: str
    dash: str
    metrics: frozenset[str] | None
    """The charts of these metrics label the marker; None stands for every chart."""


@dataclass(frozen=True, slots=True)
class _Line:
    """The readings of one curve."""

    curve: Curve
    steps: list[int]
    values: list[float]


def figures(
    report: Report, series: SeriesByMetric, comparison: ComparisonRun | None = None
) -> list[tuple[str, Figure]]:
    """Title and figure of every chart that has readings.

    Args:
        report: its findings and treatments are marked.
        series: the series to draw.
        comparison: a second run, drawn in gray.
    """
    markers = _markers(report)
    drawn = []
    for chart in CHARTS:
        lines = _lines(chart.curves, series) or _lines(chart.fallback, series)
        if lines:
            lines += _comparison_lines(chart, comparison)
            drawn.append((chart.title, _figure(chart, lines, markers)))
    return drawn


def _lines(curves: Sequence[Curve], series: SeriesByMetric) -> list[_Line]:
    lines = []
    for curve in curves:
        points = [point for point in series.points(curve.metric) if math.isfinite(point[1])]
        if points:
            steps, values = [step for step, _ in points], [value for _, value in points]
            lines.append(_Line(curve, steps, values))
    return lines


def _comparison_lines(chart: ChartSpec, comparison: ComparisonRun | None) -> list[_Line]:
    """The curves of the second run, in gray; stacked charts cannot show two runs."""
    if comparison is None or chart.stacked:
        return []
    curves = [
        replace(
            curve,
            label=f"{curve.label}, {label(comparison.label, limit=40)}",
            color="gray",
            dash="dash" if curve.dash == "solid" else curve.dash,
        )
        for curve in chart.curves
        if curve.compared
    ]
    return _lines(curves, comparison.series)


def _markers(report: Report) -> list[_Marker]:
    onsets = [
        _Marker(
            step=finding.onset_step,
            label=finding.code,
            color=_SEVERITY_COLORS[finding.severity],
            dash="dot",
            metrics=frozenset(evidence.metric for evidence in finding.evidence),
        )
        for finding in report.findings
    ]
    treatments = [
        _Marker(
            step=treatment.step,
            label=f"{treatment.remedy} {treatment.kind}",
            color=COLORS["green"],
            dash="solid",
            metrics=None,
        )
        for treatment in report.treatments
        if treatment.kind in {"applied", "kept", "undone"}
    ]
    return sorted(onsets + treatments, key=lambda marker: marker.step)


def _figure(chart: ChartSpec, lines: list[_Line], markers: list[_Marker]) -> Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    for line in lines:
        figure.add_trace(_trace(line, stacked=chart.stacked))
    metrics = {line.curve.metric for line in lines}
    labeled = [marker for marker in markers if marker.metrics is None or metrics & marker.metrics]
    last_step = max(line.steps[-1] for line in lines)
    rows = _label_rows(labeled, last_step)
    figure.update_layout(
        **_chart_layout(chart, lines, label_rows=max(rows, default=0) + 1),
        shapes=[_marker_line(marker, bold=marker in labeled) for marker in markers],
        annotations=[
            _marker_label(marker, row, "right" if _is_left(marker, last_step) else "left")
            for marker, row in zip(labeled, rows, strict=True)
        ],
    )
    return figure


def _label_rows(markers: list[_Marker], last_step: int) -> list[int]:
    """A row above the chart for each label, so that labels do not overlap."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(_LABEL_ROWS)]
    rows = []
    for marker in markers:
        width = max(1, last_step) * _LETTER_WIDTH * (len(marker.label) + 2)
        start = marker.step - width if _is_left(marker, last_step) else float(marker.step)
        span = (start, start + width)
        free = (
            row
            for row, spans in enumerate(taken)
            if not any(_overlap(span, other) for other in spans)
        )
        row = next(free, _LABEL_ROWS - 1)
        taken[row].append(span)
        rows.append(row)
    return rows


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _is_left(marker: _Marker, last_step: int) -> bool:
    return marker.step > _LEFT_LABELS_FROM * last_step


def _marker_line(marker: _Marker, *, bold: bool) -> dict[str, Any]:
    return {
        "type": "line",
        "x0": marker.step,
        "x1": marker.step,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "opacity": 0.9 if bold else 0.3,
        "line": {"color": marker.color, "width": 1.4, "dash": marker.dash},
    }


def _marker_label(marker: _Marker, row: int, side: str) -> dict[str, Any]:
    return {
        "x": marker.step,
        "y": 1.0,
        "yref": "paper",
        "yanchor": "bottom",
        "yshift": _ROW_PIXELS * row,
        "xanchor": side,
        "text": label(marker.label, limit=32),
        "showarrow": False,
        "font": {"size": 10, "color": marker.color},
    }


def _trace(line: _Line, *, stacked: bool) -> Any:
    import plotly.graph_objects as go

    curve, color = line.curve, COLORS[line.curve.color]
    sparse = len(line.steps) < _SPARSE_STEPS
    return go.Scatter(
        x=line.steps,
        y=line.values,
        name=curve.label,
        mode="lines+markers" if sparse and not stacked else "lines",
        marker={"size": 4, "color": color},
        line={"color": color, "dash": curve.dash, "width": 0.6 if stacked else 1.8},
        stackgroup="parts" if stacked else None,
        hovertemplate="step %{x}: %{y:.4g}<extra>" + curve.label + "</extra>",
    )


def _chart_layout(chart: ChartSpec, lines: list[_Line], *, label_rows: int) -> dict[str, Any]:
    values = [value for line in lines for value in line.values]
    lowest = min(values)
    logarithmic = lowest > 0 and max(values) / lowest > _LOG_RATIO and not chart.stacked
    unit = chart.unit + (", logarithmic" if logarithmic else "")
    labels_height = _ROW_PIXELS * label_rows
    base = layout("step", unit, height=280 + labels_height)
    first_step = min(line.steps[0] for line in lines)
    last_step = max(line.steps[-1] for line in lines)
    return {
        **base,
        "margin": {"l": 58, "r": 16, "t": 8 + labels_height, "b": 64},
        "legend": {"orientation": "h", "y": -0.22, "x": 0, "yanchor": "top"},
        "showlegend": len(lines) > 1,
        "hovermode": "x unified",
        "xaxis": {**base["xaxis"], "range": [first_step, last_step]},
        "yaxis": {
            **base["yaxis"],
            "type": "log" if logarithmic else "linear",
            "rangemode": "normal" if logarithmic or lowest < 0 else "tozero",
        },
    }
