"""Whether an entropy bonus is in force, which raises entropy by itself."""

from __future__ import annotations

from collections.abc import Sequence

from grpodoctor.rules.shared.logged_settings import coefficient
from grpodoctor.runs.chart import Chart

_SMALLER = "smaller-entropy-bonus"


def bonus_first(remedies: Sequence[str], chart: Chart) -> tuple[str, ...]:
    """The remedies of a rise of entropy; a smaller bonus comes first if one is in force.

    The bonus is what pushes the entropy up, and the rate only how fast.
    """
    if _SMALLER not in remedies or not (coefficient(chart, "entropy_coefficient") or 0.0) > 0:
        return tuple(remedies)
    return (_SMALLER, *(remedy for remedy in remedies if remedy != _SMALLER))
