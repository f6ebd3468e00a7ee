"""The pictures of a probe: the grid, and how one pair of engines differs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from grpodoctor.probe.controls.controls import ORDINARY
from grpodoctor.probe.results.results import Bin, Cell, Comparison
from grpodoctor.probe.severity import HARM
from grpodoctor.report.run.charts import AMBER, BLUE, GREY, RED, VIOLET
from grpodoctor.support.safe_text import html
from grpodoctor.vocabulary.values import scalar

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_GRID_LINES = "rgba(128,128,128,0.22)"
_MOST_POINTS = 1500
_SMALLEST = 1e-9
"""What agrees exactly is drawn as this on a logarithmic scale."""
_ROW_PIXELS = 46
_DECADES = 30.0
"""Largest over smallest value up to which powers of ten alone would be too few ticks."""
_LABEL_LETTERS = 160
_ROW_LETTERS, _COLUMN_LETTERS, _MOST_LINES, _MOST_LETTERS = 24, 17, 3, 66
"""A name's lines beside a row and below a column."""

_Colours = tuple[tuple[float, float] | None, list[list[Any]]]
_ENDS = (1e-4, 0.2)


def _share(value: float) -> float:
    """Where a value stands between the ends, on a logarithmic scale."""
    return math.log(value / _ENDS[0]) / math.log(_ENDS[1] / _ENDS[0])


_HARM: _Colours = (
    (math.log10(_ENDS[0]), math.log10(_ENDS[1])),
    [
        *([0, "#e6f0fd"], [_share(ORDINARY), "#b9d5f6"]),
        *([_share(ORDINARY), "#f8dfa8"], [_share(HARM), "#f0b95a"]),
        *([_share(HARM), "#eca39f"], [1, "#d9534f"]),
    ],
)
"""Where a gap has a known meaning: blue, amber and red begin at the same gaps in every report."""
_BLUES: _Colours = (None, [[0, "#e3eefc"], [1, "#7fb0ea"]])
"""Where it has none: darker is more, of those in the picture."""
GRIDDED = (
    (
        "mismatch/prob_diff_mean",
        f"Mean |Δp|: amber from {ORDINARY:g}, more than two sound engines show; red from {HARM:g}, "
        "where training was seen to suffer",
        _HARM,
    ),
    ("mismatch/prob_diff_max", "Largest |Δp| of a response, mean over responses", _BLUES),
    ("mismatch/kl_k3", "KL(sampler, learner) per token, k3, in nats", _BLUES),
)
"""What the heat maps show, and in which colours: the range in powers of ten, and the scale."""


def figure_of(cell: Cell, metric: str) -> float | None:
    """A figure of a cell; None where it was not measured."""
    if cell.comparison is None or metric not in cell.comparison.readings:
        return None
    return scalar(cell.comparison.readings[metric])


def grid_figures(cells: Sequence[Cell], names: Mapping[str, str]) -> list[tuple[str, Figure]]:
    """Heat maps of samplers against learners, one a figure and length; none for a single cell.

    Args:
        cells: of one probe.
        names: what to write for each label; hostile.
    """
    drawn = []
    for length in sorted({cell.max_tokens for cell in cells}):
        there = [cell for cell in cells if cell.max_tokens == length]
        if len(there) < 2:  # a grid of one is a number
            continue
        for metric, title, colours in GRIDDED:
            drawn.append((f"{title} ({length} tokens)", _heat_map(there, metric, names, colours)))
    return drawn


def _heat_map(
    cells: Sequence[Cell], metric: str, names: Mapping[str, str], colours: _Colours
) -> Figure:
    import plotly.graph_objects as go

    samplers = list(dict.fromkeys(cell.sampler for cell in cells))
    learners = list(dict.fromkeys(cell.learner for cell in cells))
    found = {(cell.sampler, cell.learner): figure_of(cell, metric) for cell in cells}
    values = [[found.get((row, column)) for column in learners] for row in samplers]
    ends, scale = colours
    figure = go.Figure(
        go.Heatmap(
            z=[[None if value is None else _log(value) for value in row] for row in values],
            text=[["" if value is None else f"{value:.2g}" for value in row] for row in values],
            customdata=[
                [f"{_name(row)}<br>→ {_name(column)}" for column in learners] for row in samplers
            ],
            texttemplate="%{text}",
            textfont={"color": "#1d2129"},
            hovertemplate="%{customdata}<br>%{text}<extra></extra>",
            colorscale=scale,
            zmin=None if ends is None else ends[0],
            zmax=None if ends is None else ends[1],
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    # Names are written at places, not made categories: two that look alike stay two.
    layout = _layout("learner", "sampler", height=150 + _ROW_PIXELS * len(samplers))
    layout["yaxis"] |= _named(samplers, names, _ROW_LETTERS) | {"autorange": "reversed"}
    layout["xaxis"] |= _named(learners, names, _COLUMN_LETTERS) | {"tickangle": 0}
    figure.update_layout(**layout)
    return figure


def _named(labels: Sequence[str], names: Mapping[str, str], letters: int) -> dict[str, Any]:
    """Ticks that bear names, on as many lines as these need."""
    told = [
        "<br>".join(
            map(
                html,
                wrap(names.get(label, label)[:_MOST_LETTERS], letters, break_long_words=False)[
                    :_MOST_LINES
                ],
            )
        )
        for label in labels
    ]
    places = list(range(len(labels)))
    return {"tickvals": places, "ticktext": told, "automargin": True, "showgrid": False}


def _name(label: str) -> str:
    """A whole label on two lines: the model first, the options below."""
    return html(label, limit=_LABEL_LETTERS).replace("?", "<br>", 1)


def _log(value: float) -> float:
    return math.log10(max(value, _SMALLEST)) if math.isfinite(value) else 0.0


def cell_figures(comparison: Comparison) -> list[tuple[str, Figure]]:
    """What one pair of engines looks like: token by token, by position and so on."""
    drawn = []
    if comparison.scatter:
        drawn.append(("Each token's log-probability in the two engines", _scatter(comparison)))
    if comparison.by_position:
        drawn.append(
            ("Mismatch by position in the response", _bins(comparison.by_position, "position"))
        )
    if comparison.by_probability:
        bins = _bins(comparison.by_probability, "sampler's probability")
        drawn.append(("Mismatch by the sampler's probability of a token", bins))
    if comparison.experts and comparison.experts.layers:
        drawn.append(("Tokens with other experts, by layer", _layers(comparison)))
    return drawn


def _scatter(comparison: Comparison) -> Figure:
    import plotly.graph_objects as go

    points = comparison.scatter[:_MOST_POINTS]
    lowest = min(min(point) for point in points)
    figure = go.Figure()
    figure.add_trace(
        go.Scatter(
            x=[lowest, 0],
            y=[lowest, 0],
            mode="lines",
            line={"color": GREY, "width": 1, "dash": "dot"},
            hoverinfo="skip",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[point[0] for point in points],
            y=[point[1] for point in points],
            mode="markers",
            marker={"size": 4, "color": BLUE, "opacity": 0.5},
            hovertemplate="sampler %{x:.3f}, learner %{y:.3f} nats<extra></extra>",
        )
    )
    figure.update_layout(**_layout("sampler, nats", "learner, nats"))
    return figure


def _bins(bins: Sequence[Bin], over: str) -> Figure:
    import plotly.graph_objects as go

    # Their lower borders: both would stand on end.
    names = [f"{each.low:.3g}" for each in bins]
    figure = go.Figure()
    for name, values, colour in (
        ("mean |Δp|", [each.prob_diff_mean for each in bins], BLUE),
        ("largest |Δp|", [each.prob_diff_max for each in bins], RED),
        ("mean |Δlogp|, nats", [each.logprob_diff_mean for each in bins], VIOLET),
    ):
        figure.add_trace(
            go.Scatter(
                x=names,
                y=[value if value > 0 else None for value in values],
                name=name,
                mode="lines+markers",
                marker={"size": 5, "color": colour},
                line={"color": colour, "width": 1.8},
                customdata=[(each.low, each.high, each.tokens) for each in bins],
                hovertemplate="%{customdata[0]:.4g} to %{customdata[1]:.4g}: %{y:.2e}, "
                "%{customdata[2]} tokens<extra>" + name + "</extra>",
            )
        )
    layout = _layout(f"{over}, from", "difference")
    shown = [point for trace in figure.data for point in trace.y if point is not None]
    few = bool(shown) and max(shown) < _DECADES * min(shown)
    ticks = {"dtick": "D2", "tickformat": ".0e"} if few else {"dtick": 1, "exponentformat": "power"}
    layout["yaxis"] |= {"type": "log", "tickfont": {"size": 10}, **ticks}
    layout["xaxis"] |= {"type": "category", "tickfont": {"size": 10}, "automargin": True}
    layout["margin"] |= {"t": 34}
    above = {"orientation": "h", "y": 1.02, "x": 0, "yanchor": "bottom"}
    figure.update_layout(**layout | {"showlegend": True, "legend": above})
    return figure


def _layers(comparison: Comparison) -> Figure:
    import plotly.graph_objects as go

    layers = comparison.experts.layers if comparison.experts else ()
    figure = go.Figure(
        go.Bar(
            x=[each.layer for each in layers],
            y=[each.flipped_rate for each in layers],
            marker={"color": AMBER},
            hovertemplate="layer %{x}: %{y:.3%}<extra></extra>",
        )
    )
    layout = _layout("layer", "share of tokens")
    layout["yaxis"] |= {"tickformat": ".2~%", "rangemode": "tozero"}
    layout["xaxis"] |= {"type": "category"}
    figure.update_layout(**layout)
    return figure


def _layout(across: str, up: str, *, height: int = 300) -> dict[str, Any]:
    clear = "rgba(0,0,0,0)"
    axis = {"gridcolor": _GRID_LINES, "zeroline": False, "linecolor": _GRID_LINES}
    return {
        "template": "none",
        "height": height,
        "margin": {"l": 58, "r": 16, "t": 12, "b": 56},
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "font": {"size": 12, "color": GREY, "family": "system-ui, sans-serif"},
        "showlegend": False,
        "hoverlabel": {"bgcolor": "#22262e", "font": {"color": "#f2f3f5"}},
        "xaxis": {**axis, "title": {"text": across, "standoff": 6}},
        "yaxis": {**axis, "title": {"text": up, "standoff": 6}},
    }
