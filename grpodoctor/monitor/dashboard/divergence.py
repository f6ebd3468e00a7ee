"""Where two runs diverge: the first step from which a metric differs by more than its noise.

The test. Both runs are compared at the steps, or at the numbers of generated tokens, that they
share. The noise of the difference is estimated from its changes from one reading to the next (the
median absolute change, as for a normal distribution), so that a slow trend does not count as noise.
Readings that are equal from the start, as with the same seed, are skipped. Successive blocks of ten
differences are then tested for a mean of zero. The runs diverge at the first two neighboring blocks
that both differ in the same direction, at a level of 5 % for all blocks together (Bonferroni). Two
runs with other seeds also diverge once their paths differ by more than the noise of one reading:
the test shows when they diverge, not why.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from grpodoctor.monitor.dashboard.step_means import COMPARED, MeanSeries, RunMeans, widened

Axis = Literal["step", "tokens"]

BLOCK = 10
"""Differences per block: the mean of ten is known three times as well as one reading."""
LEVEL = 0.05
"""Probability of reporting that two runs diverge if they differ by noise alone, for one metric."""
FEWEST_BLOCKS = 2

_NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution, in median absolute deviations."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """One metric of two runs."""

    label: str
    metric: str
    shared: int
    """Number of shared readings."""
    at: float | None
    """The step, or the number of tokens, from which they differ; None if they do not."""
    equal_until: float | None
    """The last place up to which all readings are equal; None if the first ones differ."""
    first: float
    second: float
    """Means of both runs from there on, or over all shared readings if they do not differ."""

    @property
    def differs(self) -> bool:
        """Whether the runs diverge in this metric."""
        return self.at is not None


def divergences(first: RunMeans, second: RunMeans, axis: Axis = "step") -> tuple[Divergence, ...]:
    """The metrics of two runs: sorted by the place where they diverge, the others last.

    Args:
        first: the metrics of one run.
        second: the metrics of the other run.
        axis: what the runs are aligned by.
    """
    compared = [
        _divergence(label, metric, first.series[metric], second.series[metric], axis)
        for label, metric in COMPARED
        if metric in first.series and metric in second.series
    ]
    known = [each for each in compared if each is not None]
    return tuple(sorted(known, key=lambda each: math.inf if each.at is None else each.at))


def _divergence(
    label: str, metric: str, first: MeanSeries, second: MeanSeries, axis: Axis
) -> Divergence | None:
    places, ones, others = aligned(first, second, axis)
    if len(places) < FEWEST_BLOCKS * BLOCK:
        return None
    differences = [one - other for one, other in zip(ones, others, strict=True)]
    at, equal = divergence_index(differences), equal_readings(differences)
    start = 0 if at is None else at
    return Divergence(
        label=label,
        metric=metric,
        shared=len(places),
        at=None if at is None else places[at],
        equal_until=places[equal - 1] if equal else None,
        first=statistics.fmean(ones[start:]),
        second=statistics.fmean(others[start:]),
    )


def aligned(
    first: MeanSeries, second: MeanSeries, axis: Axis
) -> tuple[list[float], list[float], list[float]]:
    """The shared places of two series, and the values of both there.

    By steps, the places are blocks that both have. By tokens, they are those of the first run
    within the range of the second, whose values are interpolated.
    """
    width = max(first.width, second.width)
    first, second = widened(first, width), widened(second, width)
    if axis == "tokens":
        return _aligned_by_tokens(first, second)
    others = dict(zip(second.blocks, second.means, strict=True))
    shared = [
        (block * width, mean, others[block])
        for block, mean in zip(first.blocks, first.means, strict=True)
        if block in others
    ]
    return [s[0] for s in shared], [s[1] for s in shared], [s[2] for s in shared]


def _aligned_by_tokens(
    first: MeanSeries, second: MeanSeries
) -> tuple[list[float], list[float], list[float]]:
    places: list[float] = []
    ones: list[float] = []
    others: list[float] = []
    for tokens, mean in zip(first.tokens, first.means, strict=False):
        other = _interpolated(second.tokens, second.means, tokens)
        if other is not None:
            places.append(tokens)
            ones.append(mean)
            others.append(other)
    return places, ones, others


def _interpolated(places: Sequence[float], values: Sequence[float], at: float) -> float | None:
    """The value between two places; None outside their range."""
    if not places or not places[0] <= at <= places[-1]:
        return None
    right = bisect_left(places, at)
    if places[right] == at:
        return values[right]
    share = (at - places[right - 1]) / (places[right] - places[right - 1])
    return values[right - 1] + share * (values[right] - values[right - 1])


def divergence_index(differences: Sequence[float]) -> int | None:
    """The index from which two runs differ by more than noise; None if they do not.

    Args:
        differences: one run minus the other, in order.
    """
    equal = equal_readings(differences)  # equal readings tell nothing about the noise
    rest = differences[equal:]
    if len(rest) < FEWEST_BLOCKS * BLOCK:
        return None
    blocks = [rest[at : at + BLOCK] for at in range(0, len(rest) - BLOCK + 1, BLOCK)]
    signs = _block_signs(blocks, _noise(rest))
    for number, (sign, following) in enumerate(pairwise(signs)):
        if sign and sign == following:
            return equal + number * BLOCK + _onset(blocks[number], sign)
    return None


def equal_readings(differences: Sequence[float]) -> int:
    """The number of readings from the start in which two runs are equal: they share a seed."""
    return next((at for at, each in enumerate(differences) if each != 0), len(differences))


def _noise(differences: Sequence[float]) -> float:
    """Standard deviation of one difference, from neighboring ones."""
    changes = [abs(later - earlier) for earlier, later in pairwise(differences)]
    return _NORMAL_MAD * statistics.median(changes) / math.sqrt(2)


def _block_signs(blocks: Sequence[Sequence[float]], noise: float) -> list[int]:
    """The direction in which each block differs from zero; 0 if it does not."""
    bound = statistics.NormalDist().inv_cdf(1 - LEVEL / (2 * len(blocks)))
    margin = bound * noise / math.sqrt(BLOCK)
    means = map(statistics.fmean, blocks)
    return [0 if abs(mean) <= margin else (1 if mean > 0 else -1) for mean in means]


def _onset(block: Sequence[float], sign: int) -> int:
    """The first index from which all differences of the block have the sign."""
    onset = len(block)
    while onset > 0 and block[onset - 1] * sign > 0:
        onset -= 1
    return onset if onset < len(block) else len(block) - 1
