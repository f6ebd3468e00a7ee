"""Two changes that fit a gap together, from the effect of each one alone.

To first order, the effects of two changes add up. So the pairs of a thousand changes are fitted to
a gap without a pass of the model: the pairs whose sum explains most are computed then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpodoctor.probe.attribution.edit_effects import CLIP
from grpodoctor.probe.attribution.tokens import Floats

_BLOCK = 256
"""Rows of the table of pairs that are in memory at once."""
_INDEPENDENT = 1e-3
"""Smallest share of a change's effect that the other one of a pair does not have."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What one change does to the tokens of a sample."""

    moved_N: Floats
    least: float
    """Smallest and largest multiple of the effect that the change can have. One that is computed
    as it is has about its own effect, a number any multiple, an estimate an uncertain one."""
    most: float
    may_be_opposite: bool = False
    place: str = ""
    """Changes of the same place are no pair."""


@dataclass(frozen=True, slots=True)
class FittedPair:
    """Two changes, by their numbers in a list, and the share of the gap that they explain."""

    first: int
    second: int
    explained: float
    shares: tuple[float, float]
    """The multiples of the two effects that fit best."""


def pairs_of(effects: Sequence[Effect], missing_N: Floats, most: int) -> list[FittedPair]:
    """The pairs that explain most of a gap, if they explain more than chance does.

    The criterion is the extended BIC (Chen and Chen, Biometrika 2008): N ln(rest) plus, for each
    change, ln N + 2 ln E, because it was chosen among E. A pair must be better than the best
    single change, and than nothing.

    Args:
        effects: the changes, E.
        missing_N: the gap.
        most: pairs that are wanted.
    """
    at_N = np.isfinite(missing_N)
    moved_EN = np.stack([each.moved_N for each in effects]).astype(np.float64)
    moved_EN = np.nan_to_num(np.clip(moved_EN[:, at_N], -CLIP, CLIP))
    missing = np.clip(missing_N[at_N], -CLIP, CLIP)
    whole, count = float(missing @ missing), missing.size
    size_E, cross_E = np.square(moved_EN).sum(1), moved_EN @ missing
    if whole == 0 or count < _FEWEST:
        return []
    bounds = _Bounds.of(effects)
    price = price_of(len(effects), count)
    alone = np.divide(cross_E, size_E, out=np.zeros_like(cross_E), where=size_E > 0)
    single = np.where(bounds.holds(alone, slice(None)), alone * cross_E / whole, 0.0)
    # ln(rest of the pair) + 2 price < min(ln(rest of the best single) + price, 0)
    least = 1 - min((1 - single.max()) * math.exp(-price), math.exp(-2 * price))
    found: list[FittedPair] = []
    for start in range(0, len(effects), _BLOCK):
        rows = slice(start, start + _BLOCK)
        found += _of_block(moved_EN, rows, size_E, cross_E, bounds, whole, least, most)
    return sorted(found, key=lambda pair: -pair.explained)


def price_of(changes: int, tokens: int) -> float:
    """What one of some changes must lower ln(rest) by, on a number of tokens."""
    return (math.log(tokens) + 2 * math.log(max(changes, 2))) / tokens


_FEWEST = 24
"""Tokens below which two effects fit a gap by chance."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The multiples that changes can have."""

    least_E: Floats
    most_E: Floats
    opposite_E: NDArray[np.bool_]
    place_E: NDArray[np.int64]

    @classmethod
    def of(cls, effects: Sequence[Effect]) -> _Bounds:
        places = {name: n for n, name in enumerate(dict.fromkeys(e.place for e in effects))}
        alone = -np.arange(1, len(effects) + 1)
        numbers = [places[e.place] if e.place else alone[n] for n, e in enumerate(effects)]
        return cls(
            np.array([each.least for each in effects]),
            np.array([each.most for each in effects]),
            np.array([each.may_be_opposite for each in effects]),
            np.array(numbers),
        )

    def holds(self, shares: Floats, at: slice, *, rows: bool = False) -> NDArray[np.bool_]:
        """Whether multiples are possible; of the rows or of the columns of a table."""
        least, most, opposite = (
            each[at, None] if rows else each[at]
            for each in (self.least_E, self.most_E, self.opposite_E)
        )
        size = np.where(opposite, np.abs(shares), shares)
        held: NDArray[np.bool_] = (size >= least) & (size <= most)
        return held


def _of_block(
    moved_EN: Floats, rows: slice, size_E: Floats, cross_E: Floats, bounds: _Bounds,
    whole: float, least: float, most: int,
) -> list[FittedPair]:  # fmt: skip
    """The best pairs whose first change is one of some rows."""
    common = moved_EN[rows] @ moved_EN.T
    one, other = size_E[rows, None], size_E[None]
    determinant = one * other - common**2
    is_apart = determinant > _INDEPENDENT * one * other
    safe = np.where(is_apart, determinant, 1.0)
    first = (cross_E[rows, None] * other - cross_E[None] * common) / safe
    second = (cross_E[None] * one - cross_E[rows, None] * common) / safe
    explained = (first * cross_E[rows, None] + second * cross_E[None]) / whole
    numbers = np.arange(rows.start, rows.start + len(common))
    usable = is_apart & (numbers[:, None] < np.arange(len(size_E))[None])
    usable &= bounds.place_E[rows, None] != bounds.place_E[None]
    usable &= bounds.holds(first, rows, rows=True) & bounds.holds(second, slice(None))
    explained = np.where(usable & (explained >= least), explained, -1.0)
    order = np.argsort(-explained, axis=None, kind="stable")[:most]
    return [
        FittedPair(
            int(numbers[row]), int(column), float(explained[row, column]),
            (float(first[row, column]), float(second[row, column])),
        )
        for row, column in zip(*np.unravel_index(order, explained.shape), strict=True)
        if explained[row, column] >= 0
    ]  # fmt: skip
