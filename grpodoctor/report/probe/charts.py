"""The charts of a probe: the grid, and the mismatch of one pair of engines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from grpodoctor.probe.controls.controls import ORDINARY
from grpodoctor.probe.results.results import Bin, Cell, Comparison, LayerFlips
from grpodoctor.probe.severity import HARM
from grpodoctor.report.figures import COLORS, label, layout
from grpodoctor.report.probe.phrases import format_small, pair_text
from grpodoctor.report.view import Chart
from grpodoctor.vocabulary.values import scalar

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MAX_POINTS = 1500
FEWEST_IN_BIN = 30
"""Tokens from which a bin is drawn: in smaller ones, one token decides the mean."""
_SMALLEST = 1e-9
"""Zero is drawn as this value on a logarithmic scale."""
_ROW_PIXELS = 46
_DECADES = 30.0
"""Ratio of the largest to the smallest value up to which an axis needs more ticks than powers of
ten."""
_LABEL_LETTERS = 160
_ROW_LETTERS, _COLUMN_LETTERS, _MAX_LINES, _MAX_LETTERS = 24, 17, 3, 66
"""Width of a name next to a row and below a column, its number of lines, and its length."""

_ColorScale = tuple[tuple[float, float] | None, list[list[Any]]]
_ENDS = (1e-4, 0.2)


def _position(value: float) -> float:
    """Position of a value between the ends of the scale, logarithmic, from 0 to 1."""
    return math.log(value / _ENDS[0]) / math.log(_ENDS[1] / _ENDS[0])


_HARM: _ColorScale = (
    (math.log10(_ENDS[0]), math.log10(_ENDS[1])),
    [
        *([0, "#e6f0fd"], [_position(ORDINARY), "#b9d5f6"]),
        *([_position(ORDINARY), "#f8dfa8"], [_position(HARM), "#f0b95a"]),
        *([_position(HARM), "#eca39f"], [1, "#d9534f"]),
    ],
)
"""For gaps of known meaning: blue, amber and red start at the same gap in every report."""
_BLUES: _ColorScale = (None, [[0, "#e3eefc"], [1, "#7fb0ea"]])
"""For other metrics: darker means larger, relative to the other cells."""
HEAT_MAPS = (
    (
        "mismatch/prob_diff_mean",
        f"Mean |Δp|: amber from {ORDINARY:g}, more than in most healthy pairs (the verdict uses "
        f"each pair's own rounding); red from {HARM:g}, a gap at which training was observed to "
        "suffer",
        _HARM,
    ),
    ("mismatch/prob_diff_max", "Largest |Δp| of a response, mean over responses", _BLUES),
    ("mismatch/kl_k3", "KL(sampler, learner) per token, k3, in nats", _BLUES),
)
"""Metric, caption and color scale of each heat map; the range is in powers of ten."""


def figure_of(cell: Cell, metric: str) -> float | None:
    """The value of a metric for a cell; None if it was not measured."""
    if cell.comparison is None or metric not in cell.comparison.readings:
        return None
    return scalar(cell.comparison.readings[metric])


def grid_charts(cells: Sequence[Cell], names: Mapping[str, str]) -> tuple[Chart, ...]:
    """Heat maps of samplers by learners, one per metric and response length.

    Args:
        cells: the cells of one probe; a single cell gives no heat map.
        names: display name of each engine label; may contain markup.
    """
    groups = [
        (length, [cell for cell in cells if cell.max_tokens == length])
        for length in sorted({cell.max_tokens for cell in cells})
    ]
    return tuple(
        Chart(
            caption=f"{title} ({length} tokens)",
            figure=_heat_map(group, metric, names, scale),
            words=_extreme_pairs(group, metric, names),
        )
        for length, group in groups
        if len(group) > 1
        for metric, title, scale in HEAT_MAPS
    )


def _extreme_pairs(cells: Sequence[Cell], metric: str, names: Mapping[str, str]) -> str:
    """The pairs with the largest and the smallest value of a metric."""
    values = [(value, cell) for cell in cells if (value := figure_of(cell, metric)) is not None]
    if not values:
        return "No pair was measured."
    largest, smallest = (
        f"{format_small(value)} ({pair_text(cell, names)})"
        for value, cell in (pick(values, key=lambda each: each[0]) for pick in (max, min))
    )
    return f"Largest {largest}, smallest {smallest}."


def _heat_map(
    cells: Sequence[Cell], metric: str, names: Mapping[str, str], color_scale: _ColorScale
) -> Figure:
    import plotly.graph_objects as go

    samplers = list(dict.fromkeys(cell.sampler for cell in cells))
    learners = list(dict.fromkeys(cell.learner for cell in cells))
    values_by_pair = {(cell.sampler, cell.learner): figure_of(cell, metric) for cell in cells}
    values = [[values_by_pair.get((row, column)) for column in learners] for row in samplers]
    ends, colors = color_scale
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
            colorscale=colors,
            zmin=None if ends is None else ends[0],
            zmax=None if ends is None else ends[1],
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    # Names are tick labels, not categories, so that two engines with the same name stay apart.
    axes = layout("learner", "sampler", height=150 + _ROW_PIXELS * len(samplers))
    axes["yaxis"] |= _named(samplers, names, _ROW_LETTERS) | {"autorange": "reversed"}
    axes["xaxis"] |= _named(learners, names, _COLUMN_LETTERS) | {"tickangle": 0}
    figure.update_layout(**axes)
    return figure


def _named(labels: Sequence[str], names: Mapping[str, str], letters: int) -> dict[str, Any]:
    """Ticks labeled with names, wrapped to `letters` per line."""
    return {
        "tickvals": list(range(len(labels))),
        "ticktext": [_wrapped(names.get(engine, engine), letters) for engine in labels],
        "automargin": True,
        "showgrid": False,
    }


def _wrapped(name: str, letters: int) -> str:
    lines = wrap(name[:_MAX_LETTERS], letters, break_long_words=False)
    return "<br>".join(label(line) for line in lines[:_MAX_LINES])


def _name(engine: str) -> str:
    """A complete label on two lines: the model first, its options below."""
    return label(engine, limit=_LABEL_LETTERS).replace("?", "<br>", 1)


def _log(value: float) -> float:
    return math.log10(max(value, _SMALLEST)) if math.isfinite(value) else 0.0


def cell_charts(comparison: Comparison) -> tuple[Chart, ...]:
    """The mismatch of one pair of engines: by token, position, probability and layer."""
    drawn = []
    if comparison.scatter:
        title = "Log-probability of each token in the two engines"
        drawn.append(Chart(title, _scatter(comparison), _scatter_in_words(comparison)))
    for title, name, bins in (
        ("Mismatch by position in the response", "position", comparison.by_position),
        (
            "Mismatch by the sampler's probability of a token",
            "sampler's probability",
            comparison.by_probability,
        ),
    ):
        if bins:
            drawn.append(Chart(title, _bins(bins, name), _bins_in_words(bins)))
    if layers := comparison.experts.layers if comparison.experts else ():
        worst = max(layers, key=lambda layer: layer.flipped_rate)
        words = f"Largest in layer {worst.layer}: {worst.flipped_rate:.3%}."
        title = "Tokens with a different expert, by layer"
        drawn.append(Chart(title, _layers(layers), words))
    return tuple(drawn)


def _scatter_in_words(comparison: Comparison) -> str:
    gaps = [abs(sampler - learner) for sampler, learner in comparison.scatter[:_MAX_POINTS]]
    return (
        f"{len(gaps)} tokens. Half of them differ by less than {format_small(median(gaps))} nats, "
        f"the largest difference is {format_small(max(gaps))} nats."
    )


def _bins_in_words(bins: Sequence[Bin]) -> str:
    drawn = [part for part in bins if part.tokens >= FEWEST_IN_BIN]
    if not drawn:
        return f"No bin has {FEWEST_IN_BIN} tokens."
    worst = max(drawn, key=lambda part: part.prob_diff_mean)
    small = len(bins) - len(drawn)
    left_out = (
        f" {small} bins with fewer than {FEWEST_IN_BIN} tokens are left out." if small else ""
    )
    return (
        f"Largest mean |Δp|: {format_small(worst.prob_diff_mean)}, "
        f"from {worst.low:.3g} to {worst.high:.3g}.{left_out}"
    )


def _scatter(comparison: Comparison) -> Figure:
    import plotly.graph_objects as go

    points = comparison.scatter[:_MAX_POINTS]
    lowest = min(min(point) for point in points)
    figure = go.Figure()
    figure.add_trace(
        go.Scatter(
            x=[lowest, 0],
            y=[lowest, 0],
            mode="lines",
            line={"color": COLORS["gray"], "width": 1, "dash": "dot"},
            hoverinfo="skip",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[point[0] for point in points],
            y=[point[1] for point in points],
            mode="markers",
            marker={"size": 4, "color": COLORS["blue"], "opacity": 0.5},
            hovertemplate="sampler %{x:.3f}, learner %{y:.3f} nats<extra></extra>",
        )
    )
    figure.update_layout(**layout("sampler, nats", "learner, nats"))
    return figure


def _bins(bins: Sequence[Bin], over: str) -> Figure:
    import plotly.graph_objects as go

    # Ticks show the lower end of a bin; both ends would not fit.
    names = [f"{part.low:.3g}" for part in bins]
    figure = go.Figure()
    for name, values, color in (
        ("mean |Δp|", [part.prob_diff_mean for part in bins], COLORS["blue"]),
        ("largest |Δp|", [part.prob_diff_max for part in bins], COLORS["red"]),
        ("mean |Δlogp|, nats", [part.logprob_diff_mean for part in bins], COLORS["violet"]),
    ):
        figure.add_trace(
            go.Scatter(
                x=names,
                y=[
                    value if value > 0 and part.tokens >= FEWEST_IN_BIN else None
                    for value, part in zip(values, bins, strict=True)
                ],
                name=name,
                mode="lines+markers",
                marker={"size": 5, "color": color},
                line={"color": color, "width": 1.8},
                customdata=[(part.low, part.high, part.tokens) for part in bins],
                hovertemplate="%{customdata[0]:.4g} to %{customdata[1]:.4g}: %{y:.2e}, "
                "%{customdata[2]} tokens<extra>" + name + "</extra>",
            )
        )
    axes = layout(f"{over}, from", "difference")
    shown = [point for trace in figure.data for point in trace.y if point is not None]
    few = bool(shown) and max(shown) < _DECADES * min(shown)
    ticks = {"dtick": "D2", "tickformat": ".0e"} if few else {"dtick": 1, "exponentformat": "power"}
    axes["yaxis"] |= {"type": "log", "tickfont": {"size": 10}, **ticks}
    axes["xaxis"] |= {"type": "category", "tickfont": {"size": 10}, "automargin": True}
    axes["margin"] |= {"t": 34}
    above = {"orientation": "h", "y": 1.02, "x": 0, "yanchor": "bottom"}
    figure.update_layout(**axes | {"showlegend": True, "legend": above})
    return figure


def _layers(layers: Sequence[LayerFlips]) -> Figure:
    import plotly.graph_objects as go

    figure = go.Figure(
        go.Bar(
            x=[layer.layer for layer in layers],
            y=[layer.flipped_rate for layer in layers],
            marker={"color": COLORS["amber"]},
            hovertemplate="layer %{x}: %{y:.3%}<extra></extra>",
        )
    )
    axes = layout("layer", "share of tokens")
    axes["yaxis"] |= {"tickformat": ".2~%", "rangemode": "tozero"}
    axes["xaxis"] |= {"type": "category"}
    figure.update_layout(**axes)
    return figure
