"""The selection of a person in a chart, as steps, sequences and findings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from typing import Any

from grpodoctor.report.run.finding_view import ANCHOR

_TYPED = re.compile(r"([0-9]{1,12})(?:\s*(?:-|\u2013|to)\s*([0-9]{1,12}))?")


@dataclass(frozen=True, slots=True)
class ClickedPoint:
    """A point of a chart."""

    step: int
    sequence_id: str = ""
    """The sequence behind an extreme value; empty if there is none."""
    finding: str = ""
    """The finding whose onset it marks, as in an address: `MIS002-12`."""


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


def typed_steps(text: str) -> tuple[int, int] | None:
    """The first and last step that a person wrote, such as `100-200` or `7`; None if unclear."""
    match = _TYPED.fullmatch(text.strip())
    if match is None:
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    return (first, last) if first <= last else None


def clicked_point(point: object) -> ClickedPoint | None:
    """The point of a chart that was clicked; None if there is none.

    Args:
        point: the point's `x` and `customdata` and the `meta` of its curve, as a browser sends
            them.
    """
    if not isinstance(point, Mapping):
        return None
    x, meta, data = (point.get(name) for name in ("x", "meta", "customdata"))
    if not isinstance(x, int | float) or not math.isfinite(x):
        return None
    known = data if isinstance(data, list) else []
    name = next((unescape(text) for text in reversed(known) if isinstance(text, str)), "")
    if isinstance(meta, Mapping) and meta.get("findings"):
        return ClickedPoint(round(x), finding=name.removeprefix(ANCHOR))
    return ClickedPoint(round(x), sequence_id=name)
