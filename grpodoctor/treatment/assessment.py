"""Whether a treatment helped: its targets and guards with the treatment on and off.

The treatment is switched on and off in blocks of a random order (`switchback`). After each stage of
blocks, the assessment keeps it, undoes it, or asks for another stage. Each look at the targets has
an equal share of the level, so that all looks together keep a treatment without effect with a
probability of at most `LEVEL`. Undoing needs no share: it cannot keep anything.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.runs.chart import Chart
from grpodoctor.treatment.switchback import Readings, Stage, p_values

LEVEL = 0.05
"""Probability of keeping a treatment without effect, over all looks and all targets."""

LOOKS = 3
"""Stages at most: with three, an effect of 1.5 standard deviations is found in most runs."""

HOPELESS = 0.5
"""A p-value above it ends the treatment early: no effect is in sight."""

Role = Literal["target", "guard"]
Decision = Literal["keep", "undo", "continue"]
_VERBS = {"down": ("falls", "fall"), "up": ("rises", "rise")}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric with the treatment off and on."""

    metric: str
    role: Role
    direction: str
    """The tested movement: desired for a target, undesired for a guard."""
    untreated: float
    """Median of the readings with the treatment off."""
    treated: float
    """Median of the readings with the treatment on."""
    p: float
    """Probability of so much movement in that direction if the treatment had no effect."""
    moved: bool
    """Whether it moved in that direction: beyond noise, and for a guard beyond its tolerance."""

    def to_json(self) -> dict[str, Any]:
        """The comparison as the journal stores it."""
        return {
            "metric": self.metric,
            "role": self.role,
            "direction": self.direction,
            "untreated": self.untreated,
            "treated": self.treated,
            "p": round(self.p, 4),
            "moved": self.moved,
        }

    def __str__(self) -> str:
        numbers = f"{self.untreated:.3g} off, {self.treated:.3g} on, p = {self.p:.2g}"
        if self.direction == "toward-baseline":
            verb = "returns" if self.moved else "does not return"
            return f"{self.metric} {verb} toward its starting value ({numbers})"
        rises, rise = _VERBS[self.direction]
        verb = rises if self.moved else f"does not {rise}"
        amount = " by more than its tolerance" if self.role == "guard" else ""
        return f"{self.metric} {verb}{amount} ({numbers})"


@dataclass(frozen=True, slots=True)
class Assessment:
    """The decision about a treatment, with its comparisons."""

    decision: Decision
    comparisons: tuple[Comparison, ...]
    verdict: str
    """One sentence with the numbers that decided it."""


def assess(chart: Chart, remedy: Remedy, stages: Sequence[Stage], looks: int = LOOKS) -> Assessment:
    """Assess a treatment after a complete stage.

    It is undone if a guard moved. Otherwise it is kept if a target moved. It is also undone if no
    effect is in sight or no look is left: a treatment that does not help does not stay in force.
    That its finding is resolved is no reason to keep it, because a finding begins at an extreme
    and may end by itself.

    Args:
        chart: the run so far.
        remedy: the remedy that was applied.
        stages: the stages so far, all complete.
        looks: the number of stages that this treatment may have.
    """
    guards = [
        each for one in remedy.guards for each in compare(chart, [one], "guard", stages, LEVEL)
    ]
    targets = compare(chart, remedy.targets, "target", stages, LEVEL / looks)
    comparisons = (*targets, *guards)
    breached = [str(comparison) for comparison in guards if comparison.moved]
    helped = [str(comparison) for comparison in targets if comparison.moved]
    if breached:
        return Assessment("undo", comparisons, "; ".join(breached))
    if helped:
        return Assessment("keep", comparisons, "; ".join(helped))
    if not targets:
        names = " or ".join(target.metric for target in remedy.targets)
        return Assessment("undo", comparisons, f"too few readings of {names} to assess it")
    is_last = len(stages) >= looks or min(each.p for each in targets) > HOPELESS
    return Assessment("undo" if is_last else "continue", comparisons, "; ".join(map(str, targets)))


def compare(
    chart: Chart, criteria: Sequence[Criterion], role: Role, stages: Sequence[Stage], level: float
) -> list[Comparison]:
    """Compare metrics with the treatment on and off; those with too few readings are left out.

    Args:
        chart: the run so far.
        criteria: the metrics and the movements to test, as one family.
        role: a guard has moved only if it also exceeds its tolerance.
        stages: the stages so far.
        level: p-value up to which a movement is not noise.
    """
    by_metric = {criterion.metric: criterion for criterion in criteria}
    signed = {name: _signed(chart, criterion) for name, criterion in by_metric.items()}
    comparisons = []
    for name, p in p_values(signed, stages).items():
        criterion = by_metric[name]
        untreated, treated = levels(chart, name, stages)
        if untreated is None or treated is None:
            continue
        tolerance = max(criterion.slack, criterion.tolerance * abs(untreated))
        is_large = role == "target" or not abs(treated - untreated) <= tolerance
        moved = p <= level and is_large
        comparisons.append(
            Comparison(name, role, criterion.direction, untreated, treated, p, moved)
        )
    return comparisons


def _signed(chart: Chart, criterion: Criterion) -> Readings:
    """The readings of a metric with the sign that makes the tested movement a rise."""
    readings = list(chart.series(criterion.metric))
    if criterion.direction == "up":
        return readings
    baseline = chart.baseline(criterion.metric)
    if criterion.direction == "down":
        return [(step, -value) for step, value in readings]
    if baseline is None:
        return []
    return [(step, -abs(value - baseline.level)) for step, value in readings]


def levels(chart: Chart, metric: str, stages: Sequence[Stage]) -> tuple[float | None, float | None]:
    """The median reading with the treatment off and on; None without a reading."""
    sides: tuple[list[float], list[float]] = [], []
    for stage in stages:
        for step, value in stage.within(list(chart.series(metric))):
            sides[stage.is_on(step)].append(value)
    untreated, treated = (statistics.median(side) if side else None for side in sides)
    return untreated, treated
