"""Heat maps of layers, positions and engines over steps, and what flips have to do with margins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from grpodoctor.monitor.downsampled_series import Point
from grpodoctor.monitor.vitals import format_number
from grpodoctor.report.figures import COLORS, ThemeName, label, layout
from grpodoctor.report.view import Chart

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MOST_COLUMNS = 120
_ROW_PIXELS, _LEAST_PIXELS, _MOST_PIXELS = 16, 220, 640
_MAP_SHARE = 0.93
"""Width of a heat map, as a share of its figure: the steps of all maps on a page are aligned."""
_MOST_POINTS = 3000

_Parts = Mapping[str, Sequence[Point]]


def part_heat_map(
    title: str, parts: _Parts, kind: str, theme: ThemeName, *, is_extreme_high: bool = True
) -> Chart | None:
    """Parts by steps; None without readings. A cell with several steps shows its extreme value.

    Args:
        title: caption.
        parts: the readings of each part.
        kind: what a part is: `layer`, `position`, …
        theme: colors of text and grid.
        is_extreme_high: whether the highest value of a cell is the one to see, or the lowest.
    """
    import plotly.graph_objects as go

    readings = {
        name: [point for point in points if math.isfinite(point.value)]
        for name, points in parts.items()
    }
    readings = {name: points for name, points in readings.items() if points}
    if not readings:
        return None
    steps = sorted({point.step for points in readings.values() for point in points})
    width = max(1, -(-(steps[-1] - steps[0] + 1) // _MOST_COLUMNS))
    starts = list(range(steps[0], steps[-1] + 1, width))
    pick = max if is_extreme_high else min
    cells: dict[tuple[str, int], float] = {}
    for name, points in readings.items():
        for step, value, _ in points:
            place = name, (step - steps[0]) // width
            cells[place] = pick(cells.get(place, value), value)
    rows = [[cells.get((name, column)) for column in range(len(starts))] for name in readings]
    figure = go.Figure(
        go.Heatmap(
            x=starts,
            y=[f"{kind} {label(name, limit=40)}" for name in readings],
            z=rows,
            colorscale="Cividis",
            colorbar={"x": _MAP_SHARE + 0.01, "xpad": 0, "thickness": 14, "tickformat": ".3~g"},
            **_color_range(list(cells.values())),
            hovertemplate="%{y}, step %{x}: %{z:.4g}<extra></extra>",
            hoverongaps=False,
        )
    )
    height = 90 + _ROW_PIXELS * len(readings)
    axes = layout("step", "", height=min(_MOST_PIXELS, max(_LEAST_PIXELS, height)), theme=theme)
    axes["xaxis"] |= {"domain": [0, _MAP_SHARE]}
    axes["yaxis"] |= {"autorange": "reversed", "automargin": True, "showgrid": False}
    figure.update_layout(**axes)
    return Chart(title, figure, _extreme_in_words(readings, kind, is_extreme_high=is_extreme_high))


def _color_range(values: Sequence[float]) -> dict[str, float]:
    """The range of the colors; from zero if all values are the same, which has no range."""
    low, high = min(values), max(values)
    return {"zmin": min(0.0, low), "zmax": max(high, 1.0)} if low == high else {}


def _extreme_in_words(readings: _Parts, kind: str, *, is_extreme_high: bool) -> str:
    values = {point.value for points in readings.values() for point in points}
    if len(values) == 1:
        return f"{format_number(values.pop())} in every {kind} at every step."
    pick = max if is_extreme_high else min
    extreme, name, step = pick(
        (point.value, name, point.step) for name, points in readings.items() for point in points
    )
    word = "Highest" if is_extreme_high else "Lowest"
    return f"{word}: {format_number(extreme)} in {kind} {name} at step {step}."


def margin_chart(flips: _Parts, margins: _Parts, theme: ThemeName) -> Chart | None:
    """Flips of a layer against the router's margin there; None without common readings."""
    import plotly.graph_objects as go

    pairs = [
        (margin, flip.value, f"layer {label(name, limit=40)}, step {flip.step}")
        for name, points in flips.items()
        for by_step in [{point.step: point.value for point in margins.get(name, ())}]
        for flip in points
        if (margin := by_step.get(flip.step)) is not None
        and math.isfinite(margin)
        and math.isfinite(flip.value)
    ]
    if not pairs:
        return None
    kept = pairs[:: -(-len(pairs) // _MOST_POINTS)]
    figure = go.Figure(
        go.Scattergl(
            x=[each[0] for each in kept],
            y=[each[1] for each in kept],
            text=[each[2] for each in kept],
            mode="markers",
            marker={"size": 5, "opacity": 0.5, "color": COLORS["blue"]},
            hovertemplate="%{text}: margin %{x:.3g}, flips %{y:.3%}<extra></extra>",
        )
    )
    figure.update_layout(**layout("router margin, logits", "share of experts", theme=theme))
    narrow = min(pairs)
    words = (
        f"{len(pairs)} readings. The smallest margin is {format_number(narrow[0])} logits, "
        f"where {narrow[1]:.2%} of the expert assignments differ."
    )
    return Chart("Flips by router margin", figure, words)


def token_scatter(pairs: Sequence[tuple[float, float]], theme: ThemeName) -> Chart | None:
    """The log-probability of each token in the sampler and in the learner; None without tokens."""
    import plotly.graph_objects as go

    if not pairs:
        return None
    kept = pairs[:: -(-len(pairs) // _MOST_POINTS)]
    lowest = min(min(pair) for pair in kept)
    figure: Figure = go.Figure(
        [
            go.Scatter(
                x=[lowest, 0],
                y=[lowest, 0],
                mode="lines",
                line={"color": COLORS["gray"], "dash": "dot", "width": 1},
                hoverinfo="skip",
            ),
            go.Scattergl(
                x=[pair[0] for pair in kept],
                y=[pair[1] for pair in kept],
                mode="markers",
                marker={"size": 4, "opacity": 0.5, "color": COLORS["blue"]},
                hovertemplate="sampler %{x:.3f}, learner %{y:.3f} nats<extra></extra>",
            ),
        ]
    )
    figure.update_layout(**layout("sampler, nats", "learner, nats", theme=theme))
    worst = max(abs(one - other) for one, other in pairs)
    words = f"{len(pairs)} tokens; the largest difference is {format_number(worst)} nats."
    return Chart("Log-probability of each token in the two engines", figure, words)


def sequence_histogram(values: Sequence[float | None], theme: ThemeName) -> Chart | None:
    """How many responses have which largest probability difference; None without values."""
    import plotly.graph_objects as go

    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    figure = go.Figure(
        go.Histogram(
            x=known,
            xbins={"start": 0.0, "end": 1.0, "size": 0.02},
            marker={"color": COLORS["blue"]},
            hovertemplate="|Δp| %{x}: %{y} responses<extra></extra>",
        )
    )
    figure.update_layout(
        **layout("largest |Δp| of a response", "responses", height=260, theme=theme)
    )
    beyond = sum(value > 0.5 for value in known)
    words = (
        f"{len(known)} responses, largest {format_number(max(known))}; "
        f"{beyond} responses have a token that differs by more than 0.5."
    )
    return Chart("Largest difference of each response", figure, words)
