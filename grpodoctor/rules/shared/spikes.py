"""Single readings far above their recent range, shared by the rules for gradient and loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpodoctor.runs.chart import Chart, Series
from grpodoctor.runs.estimators import robust_level

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
