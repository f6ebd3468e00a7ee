"""The selection of a person in a chart, as steps, sequences and findings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, slots=True)
class SelectedPoint:
    """A point of a chart."""

    step: int
    metric: str = ""
    """The curve's metric; empty for the mark of a finding."""
    sequence_id: str = ""
    """The sequence behind an extreme value; empty if there is none."""
    finding_anchor: str = ""
    """The finding whose onset it marks; see `anchor_of`."""


def selected_steps(selection: Mapping[str, Any]) -> tuple[int, int] | None:
    """The first and last step of the latest box; None if there is none.

    Args:
        selection: `event.selection` of `st.plotly_chart`.
    """
    for box in reversed(selection.get("box", [])):
        low, high = sorted(box["x"])
        first, last = math.ceil(low), math.floor(high)
        if first <= last:
            return first, last
    return None


def selected_point(selection: Mapping[str, Any], figure: Figure) -> SelectedPoint | None:
    """The latest point that was clicked; None if there is none.

    Args:
        selection: `event.selection` of `st.plotly_chart`.
        figure: the figure that was shown.
    """
    points = selection.get("points", [])
    if not points:
        return None
    point = points[-1]
    trace = figure.data[point["curve_number"]]
    data: Sequence[str] = trace.customdata[point["point_index"]] if trace.customdata else ()
    step = int(trace.x[point["point_index"]])
    meta = trace.meta or {}
    if meta.get("findings"):
        return SelectedPoint(step, finding_anchor=unescape(data[1]))
    sequence = unescape(data[0]) if len(data) else ""
    return SelectedPoint(step, meta.get("metric", ""), sequence)
