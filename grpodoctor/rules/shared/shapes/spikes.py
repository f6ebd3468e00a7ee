"""Spikes of a single reading above the recent range, and jumps to a level that lasts."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import robust_level
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

LARGE_KL: Condition = "large-kl"
"""Condition of a single reading of the KL that is beyond any policy that writes text."""
LASTING = 3
"""Readings for which the new level must last; a single outlier is no jump."""
BEFORE = 10
"""Readings before a jump that make the old level."""
WINDOW = 50
"""Readings that make the recent range."""

_PERCENTILE = 0.9
"""A level that more than a tenth of the readings exceed is no spike."""

_JOINT_FACTOR = 10.0
"""Multiple of the recent median at which another metric counts as spiking at the same step."""

_JOINT_PERCENTILE_FACTOR = 3.0
"""The same for the 90th percentile, for metrics that alternate between small and large."""

_KLS = ("kl/old_policy/k3", "kl/reference/k3", "kl/reference/k1", "kl/reference/k2")
_RATIO = "ratio/max"


@dataclass(frozen=True)
class SpikeLimits:
    """How far above its recent range a reading must be. All three limits apply."""

    median_factor: float
    """Multiple of the median."""
    deviations: float
    """Robust standard deviations above the median, for metrics that are always noisy."""
    percentile_factor: float
    """Multiple of the 90th percentile, for metrics that alternate between small and large."""

    def threshold(self, earlier: Sequence[float]) -> float:
        """The value above which a reading is a spike, given earlier readings of 0 or more."""
        level, spread = robust_level(earlier)
        percentile = sorted(earlier)[int(_PERCENTILE * len(earlier))]
        return max(
            self.median_factor * level,
            level + self.deviations * spread,
            self.percentile_factor * percentile,
        )


def joint_spike(chart: Chart, *others: str) -> str | None:
    """A KL divergence, or one of the other metrics, that spikes at the current step; else None."""
    for name in (*_KLS, _RATIO, *others):
        if chart.is_fresh(name) and _spikes(chart.series(name)):
            return name
    return None


def _spikes(series: Series) -> bool:
    magnitudes = [abs(value) for value in series.tail(WINDOW)]
    earlier = [value for value in magnitudes[:-1] if value > 0]
    if len(earlier) < WINDOW // 10:
        return False
    level, _ = robust_level(earlier)
    percentile = sorted(earlier)[int(_PERCENTILE * len(earlier))]
    return magnitudes[-1] > max(_JOINT_FACTOR * level, _JOINT_PERCENTILE_FACTOR * percentile)


class Jump(NamedTuple):
    """A rise within one reading that lasts."""

    step: int
    """The first step of the new level."""
    previous_step: int
    """The last step of the old level."""
    before: float
    """The highest of the readings before."""
    after: float
    """The lowest of the readings after."""


def latest_jump(series: Series, factor: float, floor: float, ranges: float = 0.0) -> Jump | None:
    """The latest jump by a factor, if the readings since then have stayed above the old level.

    Args:
        series: the metric.
        factor: how many times the highest earlier reading the new level is at least.
        floor: a level below which rises do not matter.
        ranges: how many times the range of the earlier readings the rise is at least.
    """
    if series.last < floor:
        return None
    steps, values = zip(*series, strict=True)
    for place in range(len(values) - LASTING, 1, -1):
        after = min(values[place : place + LASTING])
        if after < floor or values[place - 1] >= after / factor:
            continue
        earlier = values[max(0, place - BEFORE) : place]
        before = max(earlier)
        if after - before < ranges * (before - min(earlier)):
            continue
        if after >= factor * max(before, floor / 10) and series.level(5) >= factor * before:
            return Jump(steps[place], steps[place - 1], before, after)
    return None


def jump_at(series: Series, step: int, factor: float, floor: float, ranges: float) -> Jump | None:
    """A rise at a known step whose readings have all stayed above the earlier ones.

    Args:
        series: the metric.
        step: the first step that may be higher.
        factor: how many times the highest earlier reading the new level is at least.
        floor: a level below which rises do not matter.
        ranges: how many times the range of `BEFORE` earlier readings the rise is at least.
    """
    steps, values = zip(*series, strict=True)
    place = bisect_left(steps, step)
    earlier, later = values[max(0, place - BEFORE) : place], values[place:]
    if len(earlier) < BEFORE or len(later) < LASTING:
        return None
    before, after = max(earlier), statistics.median(later[:LASTING])
    lasting = min(after, series.level(LASTING))
    is_large = lasting >= max(floor, factor * before)
    if not is_large or lasting - before < ranges * (before - min(earlier)):
        return None
    return Jump(steps[place], steps[place - 1], before, after) if min(later) > before else None
