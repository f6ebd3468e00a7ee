"""Whether a series changes its level at one step and stays there.

A change-point test in the manner of Pettitt (1979): the best single split, and a permutation test
of it. The statistic is the sum of absolute deviations from the medians on both sides of the split,
because Pettitt's rank statistic cannot see a change within a few steps of either end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MIN_SIDE = 3
"""Steps that a level must last: one outlier, or two, are no jump."""
_MIN_STEPS = 8
_LEVEL = 0.02
"""Probability of as good a split in a random order. Three of ten steps give 2/120 at best."""
_PERMUTATIONS = 1999
_LEAST_FACTOR = 2.0
_LEAST_NOISE = 5.0
"""Smallest jump, in standard deviations of the steps of one level. Series with autocorrelated noise
wander, so an order that no permutation has is not enough."""
_LEAST_GAIN = 0.8
"""Largest deviation from two levels, as a share of that from the best line."""
_MOST_SLOPE = 0.75
"""Largest change within one level, as a share of the jump: the rest is a ramp."""
_FLOOR = 1e-12
"""Values below it are equal: they are sums of squares of rounding errors."""
_NORMAL_DEVIATION = 1.2533
"""Standard deviation over mean absolute deviation, of a normal distribution."""


def find_jump(values_S: Floats) -> int | None:
    """The index of the first step of the new level; None if there is no jump.

    Args:
        values_S: non-negative values in the order of the steps, shape (S,).
    """
    if values_S.size < _MIN_STEPS:
        return None
    logs_S = np.log(np.maximum(values_S, _FLOOR))
    deviations = _split_deviations(logs_S)
    place = int(np.argmin(deviations)) + _MIN_SIDE
    is_jump = (
        _is_large(logs_S, place)
        and all(_beats_a_line(each_S, place) for each_S in (values_S, logs_S))
        and _has_level_sides(values_S, place)
        and _probability(logs_S, float(deviations.min())) < _LEVEL
    )
    return place if is_jump else None


def _split_deviations(series: Floats) -> Floats:
    """The deviation from two levels, for each split: shape (..., S) to (..., splits)."""
    places = range(_MIN_SIDE, series.shape[-1] - _MIN_SIDE + 1)
    return np.stack([_two_levels(series, place) for place in places], axis=-1)


def _two_levels(series: Floats, place: int) -> Floats:
    return _deviation(series[..., :place]) + _deviation(series[..., place:])


def _deviation(series: Floats) -> Floats:
    """Sum of absolute deviations from the median, over the last axis."""
    total: Floats = np.abs(series - np.median(series, axis=-1, keepdims=True)).sum(axis=-1)
    return total


def _is_large(logs_S: Floats, place: int) -> bool:
    """Whether the levels differ by a factor, and by much more than the steps of each."""
    size = abs(float(np.median(logs_S[place:]) - np.median(logs_S[:place])))
    spread = _NORMAL_DEVIATION * float(_two_levels(logs_S, place)) / logs_S.size
    return size >= np.log(_LEAST_FACTOR) and size >= _LEAST_NOISE * spread


def _beats_a_line(series_S: Floats, place: int) -> bool:
    """Whether two levels describe the series clearly better than a robust line does."""
    rest_S = series_S - _slope(series_S) * np.arange(series_S.size)
    return float(_two_levels(series_S, place)) <= _LEAST_GAIN * float(_deviation(rest_S))


def _has_level_sides(values_S: Floats, place: int) -> bool:
    """Whether neither side is a ramp: weights that stay behind give a KL that goes on growing."""
    sides = values_S[:place], values_S[place:]
    size = abs(float(np.median(sides[1]) - np.median(sides[0])))
    return all(abs(_slope(side)) * (side.size - 1) <= _MOST_SLOPE * size for side in sides)


def _slope(series_S: Floats) -> float:
    """Theil and Sen's slope, per step."""
    from scipy.stats import theilslopes

    return float(theilslopes(series_S).slope)


def _probability(logs_S: Floats, deviation: float) -> float:
    """The share of random orders with as good a split; the same at each call."""
    rng = np.random.default_rng(0)
    orders = rng.permuted(np.tile(logs_S, (_PERMUTATIONS, 1)), axis=1)
    best = _split_deviations(orders).min(axis=-1)
    as_good = int((best <= deviation * (1 + 1e-9)).sum())
    return (1 + as_good) / (1 + _PERMUTATIONS)
