"""The charts of a run as plotly figures: one figure for each panel, or one with linked panels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from grpodoctor.monitor.vitals import is_share
from grpodoctor.report.figures import COLORS, THEMES, ThemeName, axis, frame, label, value_axis
from grpodoctor.report.run.panels import Line, Onset, Panel, Range, TreatmentMark
from grpodoctor.report.run.time_axis import TIME_TITLE, TimeLabels
from grpodoctor.rules.base import SEVERITIES, Severity
from grpodoctor.support.safe_text import html

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STEP_AXIS = "steps"
"""Name of the axis that charts of one page share; in the metadata of their layouts."""

_SEVERITY_COLORS: dict[Severity, str] = {
    "critical": COLORS["red"],
    "warning": COLORS["amber"],
    "info": COLORS["blue"],
}
_SEVERITY_SYMBOLS: dict[Severity, str] = {
    "critical": "x",
    "warning": "triangle-up",
    "info": "circle-open",
}
_TREATMENT_COLOR = COLORS["green"]
_SPARSE_POINTS = 40
"""Lines with fewer points are drawn with markers."""
_MARKER_PIXELS = 4.0
_BEHIND_MEAN = 0.35
"""Opacity of a curve whose moving mean is drawn."""
_SHORT_ERROR = 1e-6
"""Largest relative error of a drawn value."""
_LONGEST_SEQUENCE = 400
_STEP_MARGIN = 0.025
"""Free space at both ends of the step axis, as a share of the steps."""
_BOTTOM_MARGIN, _TOP_MARGIN = 0.05, 0.16
"""Free space below zero and above the highest value, as shares of it."""
_CLUSTER_SHARE = 0.04
"""Marks closer than this share of the step axis have one label."""
_PANEL_PIXELS, _GAP_PIXELS, _TITLE_PIXELS = 190, 84, 44
_COLUMN_GAP = 0.085
"""Width of the gap between two columns, as a share of the figure."""
_WRAP_LETTERS = 70
_THIS_PANEL, _OTHER_PANELS = 0.8, 0.3
"""Opacity of the line at an onset, in the panels whose curves show the finding and in others."""

_Mark = TypeVar("_Mark", Onset, TreatmentMark)


@dataclass(frozen=True, slots=True)
class _Cell:
    """The place of a panel in its figure."""

    suffix: str
    """Appended to `x`, `y`, `xaxis`, `yaxis` and `legend`; empty for the first panel."""
    left: float
    right: float
    bottom: float
    top: float


def panel_figure(panel: Panel, theme: ThemeName = "any") -> Figure:
    """The chart of one panel, without title."""
    cell = _Cell("", 0.0, 1.0, 0.0, 1.0)
    figure = _figure([panel], [cell], theme, height=_PANEL_PIXELS + 72)
    margin = {"l": 70, "r": 14, "t": 26, "b": 42}
    return figure.update_layout(margin=margin)


def linked_figure(
    panels: Sequence[Panel],
    columns: int = 2,
    theme: ThemeName = "light",
    selected: tuple[int, int] | None = None,
    times: TimeLabels | None = None,
) -> Figure:
    """All panels in one figure with a common step axis: zooming into one zooms into all.

    Args:
        panels: the panels, in reading order.
        columns: number of panels next to each other.
        theme: colors of text and grid.
        selected: first and last step of an interval that all panels mark.
        times: labels of the step axes instead of step numbers.
    """
    rows = max(1, math.ceil(len(panels) / columns))
    height = rows * (_PANEL_PIXELS + _GAP_PIXELS)
    cells = [_cell(number, columns, rows) for number in range(len(panels))]
    figure = _figure(panels, cells, theme, height=height + _TITLE_PIXELS)
    titles = [_title(panel, cell) for panel, cell in zip(panels, cells, strict=True)]
    figure.layout.annotations = (*figure.layout.annotations, *titles)
    if selected is not None:
        figure.layout.shapes += tuple(_selected(selected, cell, theme) for cell in cells)
    if times is not None:
        labels = {"tickvals": times.steps, "ticktext": times.texts, "title_text": TIME_TITLE}
        figure.update_xaxes(**labels)
    return figure.update_layout(margin={"l": 70, "r": 14, "t": _TITLE_PIXELS, "b": 0})


def _cell(number: int, columns: int, rows: int) -> _Cell:
    row, column = divmod(number, columns)
    pitch = (1 + _COLUMN_GAP) / columns
    height = _PANEL_PIXELS / (_PANEL_PIXELS + _GAP_PIXELS)
    top = 1 - row / rows
    return _Cell(
        suffix=str(number + 1) if number else "",
        left=column * pitch,
        right=min(1.0, column * pitch + pitch - _COLUMN_GAP),
        bottom=top - height / rows,
        top=top,
    )


def _title(panel: Panel, cell: _Cell) -> dict[str, Any]:
    return {
        "text": f"<b>{label(panel.title)}</b>",
        "x": cell.left,
        "y": cell.top,
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "yshift": 22,
        "showarrow": False,
        "font": {"size": 14},
    }


def _figure(
    panels: Sequence[Panel], cells: Sequence[_Cell], theme: ThemeName, *, height: int
) -> Figure:
    import plotly.graph_objects as go

    traces: list[dict[str, Any]] = []
    layout = {
        **frame(theme, height=height),
        "showlegend": True,
        "hovermode": "x unified",
        "dragmode": "zoom",
        "uirevision": STEP_AXIS,
        "meta": {"axis": STEP_AXIS},
        "shapes": [],
        "annotations": [],
    }
    for panel, cell in zip(panels, cells, strict=True):
        traces += _traces(panel, cell, theme)
        layout["shapes"] += _shapes(panel, cell)
        layout["annotations"] += _treatment_labels(panel, cell, theme)
        layout |= _axes(panel, cell, theme)
    return go.Figure({"data": traces, "layout": layout})


def _axes(panel: Panel, cell: _Cell, theme: ThemeName) -> dict[str, Any]:
    """The two axes and the legend of a panel."""
    suffix = cell.suffix
    values = [point.value for line in panel.lines for point in line.finite]
    log = panel.is_logarithmic
    unit = label(panel.unit) + (" (log)" if log else "")
    return {
        f"xaxis{suffix}": {
            **axis(theme),
            "domain": [cell.left, cell.right],
            "anchor": f"y{suffix}",
            "range": _step_range(panel),
            "title": {"text": "step", "standoff": 4},
            **({"matches": "x"} if suffix else {}),
        },
        f"yaxis{suffix}": {
            **value_axis(theme, is_share=is_share(panel.lines[0].curve.metric)),
            "domain": [cell.bottom, cell.top],
            "anchor": f"x{suffix}",
            "type": "log" if log else "linear",
            **_value_range(panel, values),
            "title": {"text": unit, "standoff": 6},
        },
        f"legend{suffix}": {
            "orientation": "h",
            "x": cell.left,
            "y": cell.top,
            "xanchor": "left",
            "yanchor": "bottom",
            "bgcolor": "rgba(0,0,0,0)",
            "font": {"size": 11},
        },
    }


def _value_range(panel: Panel, values: Sequence[float]) -> dict[str, Any]:
    """From zero, with margins: a curve on the frame is invisible, and marks need space above."""
    if panel.is_logarithmic or min(values) < 0:
        return {}
    top = max([*values, *([panel.start.high] if panel.start else [])]) or 1.0
    return {"range": [-_BOTTOM_MARGIN * top, (1 + _TOP_MARGIN) * top]}


def _step_range(panel: Panel) -> list[float]:
    """All steps, with margins: marks at the first step would cover the numbers of the axis."""
    first, last = panel.steps
    margin = _STEP_MARGIN * (last - first) or 0.5  # a run of one step has a range too
    return [first - margin, last + margin]


def _traces(panel: Panel, cell: _Cell, theme: ThemeName) -> list[dict[str, Any]]:
    traces = [_curve(line, cell, is_named=panel.has_names) for line in panel.lines]
    traces += [_moving_mean(line, cell) for line in panel.lines if line.means]
    return traces + [
        trace
        for trace in (_onset_markers(panel, cell, theme), _nonfinite_markers(panel, cell))
        if trace["x"]
    ]


def _curve(line: Line, cell: _Cell, *, is_named: bool) -> dict[str, Any]:
    curve, points = line.curve, line.points
    color, name = COLORS[curve.color], label(curve.label)
    values = np.array([point.value for point in points])
    sizes = _marker_sizes(values)
    return {
        **_scatter(cell, "lines+markers" if sizes.any() else "lines"),
        # Arrays: plotly checks and copies the entries of lists one by one.
        "x": np.array([point.step for point in points]),
        "y": _short(values),
        "name": name,
        "showlegend": is_named,
        "marker": {"color": color, **({"size": sizes} if sizes.any() else {})},
        "line": {"color": color, "dash": curve.dash, "width": 1.7},
        "opacity": _BEHIND_MEAN if line.means else 1.0,
        "meta": {"metric": curve.metric},
        **_hover(line, name),
    }


def _moving_mean(line: Line, cell: _Cell) -> dict[str, Any]:
    """The moving mean over a curve, in its color; the pointer shows the curve's own values."""
    steps, means = np.array(line.means).T
    return {
        **_scatter(cell, "lines"),
        "x": steps,
        "y": _short(means),
        "line": {"color": COLORS[line.curve.color], "dash": line.curve.dash, "width": 2.4},
        "hoverinfo": "skip",
        "showlegend": False,
        "meta": {"mean_of": line.curve.metric},
        "name": "moving mean",
    }


def _scatter(cell: _Cell, mode: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": mode,
        "xaxis": f"x{cell.suffix}",
        "yaxis": f"y{cell.suffix}",
        "legend": f"legend{cell.suffix}",
    }


def _marker_sizes(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A marker for each point of a sparse line, and for points between two gaps."""
    shown = np.isfinite(values)
    if shown.sum() < _SPARSE_POINTS:
        return np.full(len(shown), _MARKER_PIXELS)
    padded = np.pad(shown, 1)
    return np.where(shown & ~padded[:-2] & ~padded[2:], _MARKER_PIXELS, 0.0)


def _short(values: NDArray[np.float64]) -> NDArray[np.floating]:
    """Values with the seven digits that a chart can show, unless that changes their size."""
    with np.errstate(over="ignore", under="ignore"):
        short = values.astype(np.float32)
    is_equal = np.allclose(short, values, rtol=_SHORT_ERROR, atol=0.0, equal_nan=True)
    return short if is_equal else values


def _hover(line: Line, name: str) -> dict[str, Any]:
    """What the box next to the mouse pointer says; for extreme values, it names the sequence."""
    if not any(point.where for point in line.points):
        return {"hovertemplate": "%{y:.4g}<extra>" + name + "</extra>"}
    return {
        "customdata": [[html(point.where, limit=_LONGEST_SEQUENCE)] for point in line.points],
        "hovertemplate": "%{y:.4g} in %{customdata[0]}<extra>" + name + "</extra>",
    }


def _onset_markers(panel: Panel, cell: _Cell, theme: ThemeName) -> dict[str, Any]:
    """The onsets of the findings on the curves that they rest on."""
    marked = [onset for onset in panel.onsets if onset.value is not None]
    by_curve = {onset.metric: [each for each in marked if each.metric == onset.metric]
                for onset in marked}  # fmt: skip
    clusters = [part for onsets in by_curve.values() for part in _clusters(onsets, panel)]
    worst = [max(part, key=lambda onset: SEVERITIES.index(onset.severity)) for part in clusters]
    return {
        **_scatter(cell, "markers+text"),
        "x": [part[0].step for part in clusters],
        "y": [part[0].value for part in clusters],
        "text": [_cluster_label(part, lambda onset: onset.code) for part in clusters],
        "textposition": "top center",
        "textfont": {
            "size": 10,
            "color": [_SEVERITY_COLORS[each.severity] for each in worst],
            **_halo(THEMES[theme].paper),
        },
        "marker": {
            "size": 10,
            "symbol": [_SEVERITY_SYMBOLS[each.severity] for each in worst],
            "color": [_SEVERITY_COLORS[each.severity] for each in worst],
        },
        "customdata": [
            ["<br>".join(_wrapped(onset.title) for onset in part), label(part[0].anchor)]
            for part in clusters
        ],
        "hovertemplate": "%{customdata[0]}<extra></extra>",
        "showlegend": False,
        "cliponaxis": False,
        "name": "findings",
        "meta": {"findings": True},
    }


def _halo(paper: str) -> dict[str, str]:
    """Keeps text readable on a line."""
    return {"shadow": f"0 0 3px {paper}, 0 0 3px {paper}, 0 0 3px {paper}"} if paper else {}


def _nonfinite_markers(panel: Panel, cell: _Cell) -> dict[str, Any]:
    """The steps at which a metric was logged but was no number, at the bottom of the chart."""
    steps = sorted({step for line in panel.lines for step in line.nonfinite_steps})
    bottom = min(point.value for line in panel.lines for point in line.finite)
    return {
        **_scatter(cell, "markers"),
        "x": steps,
        "y": [bottom] * len(steps),
        "marker": {"size": 9, "symbol": "y-down-open", "color": COLORS["red"]},
        "hovertemplate": "not a finite number<extra></extra>",
        "showlegend": False,
        "cliponaxis": False,
        "name": "not finite",
    }


def _clusters(marks: Iterable[_Mark], panel: Panel) -> list[list[_Mark]]:
    """The marks in groups, each within a small part of the step axis."""
    width = _CLUSTER_SHARE * (panel.steps[1] - panel.steps[0])
    clusters: list[list[_Mark]] = []
    for mark in marks:
        if clusters and mark.step - clusters[-1][0].step <= width:
            clusters[-1].append(mark)
        else:
            clusters.append([mark])
    return clusters


def _cluster_label(cluster: Sequence[_Mark], name: Callable[[_Mark], str]) -> str:
    more = f" +{len(cluster) - 1}" if len(cluster) > 1 else ""
    return label(name(cluster[0])) + more


def _wrapped(text: str) -> str:
    """Text on lines of bounded length: a hover box does not wrap."""
    from textwrap import wrap

    return "<br>".join(label(line) for line in wrap(text, _WRAP_LETTERS))


def _shapes(panel: Panel, cell: _Cell) -> list[dict[str, Any]]:
    alarms = [onset for onset in panel.onsets if onset.severity != "info"]
    onsets = [
        _vertical(
            onset.step,
            cell,
            line={"color": _SEVERITY_COLORS[onset.severity], "dash": "dot", "width": 1.4},
            opacity=_OTHER_PANELS if onset.value is None else _THIS_PANEL,
        )
        for onset in alarms
    ]
    treatments = [
        _vertical(step, cell, line={"color": _TREATMENT_COLOR, "width": 1.6}, opacity=_THIS_PANEL)
        for step in sorted({mark.step for mark in panel.treatments})
    ]
    band = [_band(panel, panel.start, cell)] if panel.start else []
    return band + onsets + treatments


def _band(panel: Panel, start: Range, cell: _Cell) -> dict[str, Any]:
    """The starting range of the first curve."""
    lowest = min(point.value for point in panel.lines[0].finite)
    low = lowest if panel.is_logarithmic and start.low <= 0 else start.low
    return {
        "type": "rect",
        "layer": "below",
        "xref": f"x{cell.suffix} domain",
        "yref": f"y{cell.suffix}",
        "x0": 0,
        "x1": 1,
        "y0": low,
        "y1": start.high,
        "line": {"width": 0},
        "fillcolor": COLORS[panel.lines[0].curve.color],
        "opacity": 0.14,
        "name": "starting range",
    }


def _selected(steps: tuple[int, int], cell: _Cell, theme: ThemeName) -> dict[str, Any]:
    """The selected interval; half a step is added on each side, so that one step is visible."""
    return {
        "type": "rect",
        "layer": "below",
        "xref": f"x{cell.suffix}",
        "yref": f"y{cell.suffix} domain",
        "x0": steps[0] - 0.5,
        "x1": steps[1] + 0.5,
        "y0": 0,
        "y1": 1,
        "line": {"width": 1, "color": THEMES[theme].text},
        "fillcolor": THEMES[theme].text,
        "opacity": 0.16,
        "name": "selected steps",
    }


def _vertical(step: int, cell: _Cell, *, line: dict[str, Any], opacity: float) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": f"x{cell.suffix}",
        "yref": f"y{cell.suffix} domain",
        "x0": step,
        "x1": step,
        "y0": 0,
        "y1": 1,
        "opacity": opacity,
        "line": line,
    }


def _treatment_labels(panel: Panel, cell: _Cell, theme: ThemeName) -> list[dict[str, Any]]:
    """A label along each treatment's line, and the whole journal entry on hover."""
    return [
        {
            "x": cluster[0].step,
            "y": 1,
            "xref": f"x{cell.suffix}",
            "yref": f"y{cell.suffix} domain",
            "xanchor": "right",
            "yanchor": "top",
            "textangle": -90,
            "showarrow": False,
            "text": _cluster_label(cluster, lambda mark: mark.label),
            "hovertext": "<br>".join(_wrapped(mark.title) for mark in cluster),
            "font": {"size": 11, "color": _TREATMENT_COLOR, **_halo(THEMES[theme].paper)},
        }
        for cluster in _clusters(panel.treatments, panel)
    ]
