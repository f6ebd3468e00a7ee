"""Whether a treatment helped: levels before and after, and whether the difference is noise.

A metric has moved if the one-sided Mann-Whitney test finds a difference between the readings before
the treatment and the later half of those since. The test uses ranks, so outliers and the unit do
not matter, and it needs no estimate of a spread from six readings.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.runs.chart import Chart

BEFORE = 6
"""Readings that make the level before: enough for the test, few enough to be the current state."""

FEWEST = 3
"""Minimum readings before and after; 3 against 6 can still be significant."""

LEVEL = 0.05
"""Probability of taking noise for a movement: per guard, and for all targets of a remedy."""

Role = Literal["target", "guard"]
_VERBS = {"down": ("fell", "fall"), "up": ("rose", "rise")}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric before and after."""

    metric: str
    role: Role
    direction: str
    """The tested movement: desired for a target, undesired for a guard."""
    before: float
    after: float
    p: float
    """Probability of so much movement in that direction if nothing had changed."""
    moved: bool
    """Whether it moved in that direction: beyond noise, and for a guard beyond its tolerance."""

    def to_json(self) -> dict[str, Any]:
        """The comparison as the journal stores it."""
        return {
            "metric": self.metric,
            "role": self.role,
            "direction": self.direction,
            "before": self.before,
            "after": self.after,
            "p": round(self.p, 4),
            "moved": self.moved,
        }

    def __str__(self) -> str:
        numbers = f"{self.before:.3g} to {self.after:.3g}, p = {self.p:.2g}"
        if self.direction == "toward-baseline":
            verb = "returned" if self.moved else "did not return"
            return f"{self.metric} {verb} toward its starting value ({numbers})"
        past, infinitive = _VERBS[self.direction]
        verb = past if self.moved else f"did not {infinitive}"
        amount = " by more than its tolerance" if self.role == "guard" else ""
        return f"{self.metric} {verb}{amount} ({numbers})"


@dataclass(frozen=True, slots=True)
class Assessment:
    """The decision to keep or undo a treatment, with its comparisons."""

    keep: bool
    comparisons: tuple[Comparison, ...]
    verdict: str
    """One sentence with the numbers that decided it."""


def readings_since(chart: Chart, metric: str, step: int) -> list[float]:
    """The readings at `step` and later in the chart's window, oldest first."""
    return [value for at, value in chart.series(metric) if at >= step]


def readings_before(chart: Chart, metric: str, step: int) -> list[float]:
    """The last `BEFORE` readings earlier than `step`, oldest first."""
    return [value for at, value in chart.series(metric) if at < step][-BEFORE:]


def assess(chart: Chart, remedy: Remedy, applied_step: int, *, is_resolved: bool) -> Assessment:
    """Assess a treatment that began at `applied_step`.

    It is undone if a guard moved. Otherwise it is kept if a target moved or the finding is
    resolved, and undone if not: a treatment that does not help does not stay in force.

    Args:
        chart: the run so far.
        remedy: the remedy that was applied.
        applied_step: the first step under it.
        is_resolved: whether the finding that it treats is resolved.
    """
    targets = _compare_all(chart, remedy.targets, "target", applied_step)
    guards = _compare_all(chart, remedy.guards, "guard", applied_step)
    breached = [str(comparison) for comparison in guards if comparison.moved]
    helped = [str(comparison) for comparison in targets if comparison.moved]
    if breached:
        keep, reasons = False, breached
    elif helped:
        keep, reasons = True, helped
    elif is_resolved:
        keep, reasons = True, ["the finding is resolved"]
    elif targets:
        keep, reasons = False, [str(comparison) for comparison in targets]
    else:
        names = " or ".join(target.metric for target in remedy.targets)
        keep, reasons = False, [f"too few readings of {names} to assess it"]
    return Assessment(keep, (*targets, *guards), "; ".join(reasons))


def _compare_all(
    chart: Chart, criteria: Sequence[Criterion], role: Role, step: int
) -> list[Comparison]:
    level = LEVEL / max(1, len(criteria)) if role == "target" else LEVEL
    comparisons = (compare(chart, criterion, role, step, level) for criterion in criteria)
    return [comparison for comparison in comparisons if comparison is not None]


def compare(
    chart: Chart, criterion: Criterion, role: Role, applied_step: int, level: float = LEVEL
) -> Comparison | None:
    """Compare a metric before and after; None if there are too few readings.

    Args:
        chart: the run so far.
        criterion: the metric and the movement to test.
        role: a guard has moved only if it also exceeds its tolerance.
        applied_step: the first step under the treatment.
        level: p-value below which a movement is not noise.
    """
    since = readings_since(chart, criterion.metric, applied_step)
    before, after = readings_before(chart, criterion.metric, applied_step), since[len(since) // 2 :]
    if min(len(before), len(after)) < FEWEST:
        return None
    was, now = statistics.median(before), statistics.median(after)
    p = _p_value(chart, criterion, before, after)
    if p is None:
        return None
    tolerance = max(criterion.slack, criterion.tolerance * abs(was))
    moved = p < level and (role == "target" or abs(now - was) > tolerance)
    return Comparison(criterion.metric, role, criterion.direction, was, now, p, moved)


def _p_value(
    chart: Chart, criterion: Criterion, before: list[float], after: list[float]
) -> float | None:
    if criterion.direction == "toward-baseline":
        baseline = chart.baseline(criterion.metric)
        if baseline is None:
            return None
        before = [abs(value - baseline.level) for value in before]
        after = [abs(value - baseline.level) for value in after]
    is_up = criterion.direction == "up"
    return p_value_of_rise(before, after) if is_up else p_value_of_rise(after, before)


def p_value_of_rise(low: Sequence[float], high: Sequence[float]) -> float:
    """One-sided p-value of `high` being above `low`; 1 if all values are equal.

    Source: Mann and Whitney 1947, The Annals of Mathematical Statistics 18.
    """
    if any(map(math.isnan, (*low, *high))) or min(*low, *high) == max(*low, *high):
        return 1.0
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(low, high, alternative="less").pvalue)
