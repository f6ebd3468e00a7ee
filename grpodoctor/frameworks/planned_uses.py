"""How keys of a log are read: rows of the table, applied to rows with the same keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from grpodoctor.frameworks.key_meaning import KeyMeaning
from grpodoctor.vocabulary.metric import Kind

ROUNDING = 1e-3
"""A share may exceed its bounds by so much through rounding."""


@dataclass(frozen=True, slots=True)
class Use:
    """A row of the table, applied to this log."""

    meaning: KeyMeaning
    metric: str
    keys: tuple[str, ...]
    """Bare keys with their placeholders filled."""


class PlannedUse(NamedTuple):
    """A use of keys in rows with the same keys."""

    use: Use
    keys: tuple[str, ...]
    """As logged."""
    kind: Kind
    is_plain: bool
    """Whether the logged number is the reading."""


class QuickUse(NamedTuple):
    """A use of keys, with the numbers that are read without further questions."""

    key: str
    """The first key, as logged."""
    metric: str
    low: float
    high: float
    """A number between these two is the mean of one measurement. No number is if they are NaN."""
    zero_too: bool
    """Whether that holds for zero."""
    planned: PlannedUse
    """The use of all other numbers."""


_QUICK_BOUNDS: Mapping[Kind, tuple[float, float]] = {
    "mean": (-math.inf, math.inf),
    "rate": (-ROUNDING, 1 + ROUNDING),
}


def quick_use(planned: PlannedUse) -> QuickUse:
    """What of a use of keys needs no further question in most rows."""
    meaning, bounds = planned.use.meaning, (math.nan, math.nan)
    if meaning.is_plain_unless_zero:
        bounds = _QUICK_BOUNDS.get(planned.kind, bounds)
    return QuickUse(planned.keys[0], planned.use.metric, *bounds, planned.is_plain, planned)
