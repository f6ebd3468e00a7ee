"""The lengths of a run's responses and their limit, where truncation is not logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpodoctor.rules.base import Rule
from grpodoctor.rules.length.length_near_limit import LengthNearLimit
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.runs.chart import Chart

_MEAN, _TRUNCATED = "length/mean", "length/truncated_rate"


@dataclass(frozen=True, slots=True)
class Lengths:
    """What the lengths of a run show, in tokens."""

    level: float = 0.0
    """Mean length of the latest twenty readings; 0 if it is not logged."""
    limit: float = 0.0
    """The limit that the config or the readings show; 0 if unknown, or if truncation is logged."""
    near_limit_share: float = LengthNearLimit.near_limit_share
    """Share of the limit from which a mean length is near it."""

    def is_near(self, level: float) -> bool:
        """Whether a mean length is near the limit."""
        return self.near_limit_share * self.limit <= level <= self.limit


def lengths_of(chart: Chart, rules: Sequence[Rule] = ()) -> Lengths:
    """The lengths of a run after its latest step.

    Args:
        chart: the run.
        rules: its rules; the thresholds are those of LEN003 among them, or its usual ones.
    """
    means = chart.series(_MEAN)
    if not len(means) or len(chart.series(_TRUNCATED)):
        return Lengths()
    judge = next((rule for rule in rules if isinstance(rule, LengthNearLimit)), LengthNearLimit())
    limit, _ = judge.limit(chart)
    return Lengths(means.level(2 * RECENT), limit, judge.near_limit_share)
