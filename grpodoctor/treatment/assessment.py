"""Whether a treatment helped: levels before and after, and whether the difference is noise.

A metric has moved when the one-sided Mann-Whitney test between the readings before the treatment
and the later half of those since says so. It looks at ranks alone, so that neither outliers nor the
unit matter, and it needs no estimate of a spread from six readings.
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
"""Readings that make the level before: enough for the test, few enough to be the present state."""

FEWEST = 3
"""Readings on either side below which nothing is said; 3 against 6 can still reach the level."""

LEVEL = 0.05
"""Chance of calling noise a movement: of a guard, and of all targets of a remedy together."""

Role = Literal["target", "guard"]
_VERBS = {"down": ("fell", "fall"), "up": ("rose", "rise")}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric before and after."""

    metric: str
    role: Role
    direction: str
    """The movement that was looked for: wanted of a target, unwanted of a guard."""
    before: float
    after: float
    p: float
    """Chance of so much movement in that direction if nothing had changed."""
    moved: bool
    """It moved in that direction: by more than noise, and for a guard by more than is tolerated."""

    def to_json(self) -> dict[str, Any]:
        """For the journal."""
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
        numbers = f"{self.before:.3g} to {self.after:.3g}, p {self.p:.2g}"
        if self.direction == "toward-baseline":
            did = "returned" if self.moved else "did not return"
            return f"{self.metric} {did} toward where the run began ({numbers})"
        past, infinitive = _VERBS[self.direction]
        did = past if self.moved else f"did not {infinitive}"
        measure = " by more than is tolerated" if self.role == "guard" else ""
        return f"{self.metric} {did}{measure} ({numbers})"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Keep or undo, with the arithmetic."""

    keep: bool
    comparisons: tuple[Comparison, ...]
    verdict: str
    """One sentence with the numbers in it."""


def readings_since(chart: Chart, metric: str, step: int) -> list[float]:
    """The readings at `step` and later that the chart still holds, oldest first."""
    return [value for at, value in chart.series(metric) if at >= step]


def readings_before(chart: Chart, metric: str, step: int) -> list[float]:
    """The last `BEFORE` readings earlier than `step`, oldest first."""
    return [value for at, value in chart.series(metric) if at < step][-BEFORE:]


def judge(chart: Chart, remedy: Remedy, applied_step: int, *, resolved: bool) -> Judgement:
    """Judge a treatment that began at `applied_step`.

    A guard that was breached undoes it. Otherwise it is kept if a target moved or the finding
    is over, and undone if neither did: what does not help is not left in place.

    Args:
        chart: the run so far.
        remedy: what was applied.
        applied_step: the first step under it.
        resolved: whether the finding that it was given for is over.
    """
    targets = _compare_all(chart, remedy.targets, "target", applied_step)
    guards = _compare_all(chart, remedy.guards, "guard", applied_step)
    breached = [each for each in guards if each.moved]
    helped = [each for each in targets if each.moved]
    if breached:
        keep, reasons = False, [str(each) for each in breached]
    elif helped:
        keep, reasons = True, [str(each) for each in helped]
    elif resolved:
        keep, reasons = True, ["the finding is over"]
    elif targets:
        keep, reasons = False, [str(each) for each in targets]
    else:
        names = " or ".join(each.metric for each in remedy.targets)
        keep, reasons = False, [f"there are too few readings of {names} to judge it"]
    return Judgement(keep, (*targets, *guards), "; ".join(reasons))


def _compare_all(
    chart: Chart, watches: Sequence[Criterion], role: Role, step: int
) -> list[Comparison]:
    level = LEVEL / max(1, len(watches)) if role == "target" else LEVEL
    made = (compare(chart, each, role, step, level) for each in watches)
    return [each for each in made if each is not None]


def compare(
    chart: Chart, watch: Criterion, role: Role, applied_step: int, level: float = LEVEL
) -> Comparison | None:
    """Compare a metric before and after; None where there are too few readings for it.

    Args:
        chart: the run so far.
        watch: the metric and the movement to look for.
        role: a guard has moved only if it went further than is tolerated, too.
        applied_step: the first step under the treatment.
        level: p-value below which a movement is not noise.
    """
    since = readings_since(chart, watch.metric, applied_step)
    before, after = readings_before(chart, watch.metric, applied_step), since[len(since) // 2 :]
    if min(len(before), len(after)) < FEWEST:
        return None
    was, now = statistics.median(before), statistics.median(after)
    p = _chance(chart, watch, before, after)
    if p is None:
        return None
    beyond = role == "target" or abs(now - was) > _tolerated(watch, was)
    moved = p < level and beyond
    return Comparison(watch.metric, role, watch.direction, was, now, p, moved)


def _tolerated(watch: Criterion, level: float) -> float:
    return max(watch.slack, watch.tolerance * abs(level))


def _chance(
    chart: Chart, watch: Criterion, before: list[float], after: list[float]
) -> float | None:
    if watch.direction == "toward-baseline":
        baseline = chart.baseline(watch.metric)
        if baseline is None:
            return None
        before = [abs(value - baseline.level) for value in before]
        after = [abs(value - baseline.level) for value in after]
    up = watch.direction == "up"
    return chance_of_rise(before, after) if up else chance_of_rise(after, before)


def chance_of_rise(low: Sequence[float], high: Sequence[float]) -> float:
    """One-sided p-value of `high` lying above `low`; 1 where all values are equal.

    Source: Mann and Whitney 1947, The Annals of Mathematical Statistics 18.
    """
    if any(map(math.isnan, (*low, *high))) or min(*low, *high) == max(*low, *high):
        return 1.0
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(low, high, alternative="less").pvalue)
