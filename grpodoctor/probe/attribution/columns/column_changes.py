"""A change of a column of log-probabilities that its numbers suggest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grpodoctor.probe.attribution.tokens import Floats, Integers, Tokens
from grpodoctor.probe.attribution.variant import ColumnMap

NEARLY_WHOLE = 0.97
"""Share of the gap that a change must explain that makes many columns more alike."""


@dataclass(frozen=True, slots=True)
class Recognized:
    """A change that the numbers of a column suggest."""

    cause: str
    what: str
    """What the column is, in words that follow "the sampler's log-probabilities are"."""
    changed_N: Floats
    """The changed column, made comparable."""
    other_N: Floats
    """The other column, made comparable."""
    least: float = 0.0
    """Share of the gap that the change must explain: sorting and a factor make many columns more
    alike."""
    map_changed: ColumnMap | None = None
    """From the changed column to `changed_N`; None if they are equal."""
    map_other: ColumnMap | None = None
    """From the other column to `other_N`; None if they are equal."""
    is_conclusive: bool = False
    """Whether the numbers show the change also next to another fault."""


def changed(
    tokens: Tokens, cause: str, what: str, changed_N: Floats, other_N: Floats, made: ColumnMap
) -> Recognized:
    """A change that is undone in the changed column."""
    undone_N = made.change(tokens.lengths_B, changed_N)
    return Recognized(cause, what, undone_N, other_N, map_changed=made)


def same_change(
    tokens: Tokens, cause: str, what: str, changed_N: Floats, other_N: Floats, made: ColumnMap
) -> Recognized:
    """A change that is made to the other column, too."""
    made_N = made.change(tokens.lengths_B, other_N)
    return Recognized(cause, what, changed_N, made_N, map_other=made)


def each_response(change: Callable[[Floats], Floats]) -> ColumnMap:
    """A change of each response by itself."""

    def changed(lengths_B: Integers, column_N: Floats) -> Floats:
        parts = np.split(column_N, np.cumsum(lengths_B)[:-1])
        return np.concatenate([change(part) if part.size else part for part in parts])

    return ColumnMap(changed)


def by_response(tokens: Tokens, column_N: Floats) -> list[Floats]:
    """The values of each response."""
    return np.split(column_N, np.cumsum(tokens.lengths_B)[:-1])


def distance(one: Floats, other: Floats) -> float:
    """The mean |Δlogp| of tokens that have both values; infinite without any."""
    at = np.isfinite(one) & np.isfinite(other)
    return float(np.abs(one[at] - other[at]).mean()) if at.any() else np.inf
