"""REW020."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    has_lost_outcome,
    is_solved,
    outcome_metric,
    outcome_noun,
)
from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.rules.shared.outcome.flat_outcome import (
    flat_levels,
    outcome_rose,
    reason_for_no_rise,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

FELL = " fell:"
"""What the summary contains if the outcome fell by more than its noise."""


class NoRise(Rule):
    """The outcome is where it began, and the log shows what may keep it there.

    What it sees:
        Twenty readings or more of accuracy or reward without a rise beyond noise, neither of the
        latest level above the first nor over the whole run, in training or held out. The text
        states the first and the latest level with the noise of their difference, and the first of
        these that applies: half of the groups have equal rewards; the outcome began near its
        maximum; the policy has hardly moved from the reference; the policy has moved, but not
        towards more reward.

    Why it matters:
        No fault was found, and the run still learns nothing. What to change depends on which of
        these holds: more gradient, larger steps, or a check of the reward.

    Evidence it needs:
        `accuracy/train` or `reward/mean`. For the reason: zero-variance groups,
        `kl/reference`, `entropy/mean` or `length/mean`.

    Remedies:
        Prompts of another difficulty; a higher learning rate; a larger batch; score known answers.

    When it is wrong:
        It is a note and never a warning: a run may rise later, or by less than its noise shows.

    References:
        Kendall 1938, A new measure of rank correlation, for the trend over the run.
    """

    code: ClassVar[str] = "REW020"
    name: ClassVar[str] = "no-rise"
    condition: ClassVar[Condition] = "plateau"
    summary: ClassVar[str] = "Accuracy or reward is where it began."
    inputs: ClassVar[tuple[Need, ...]] = (("accuracy/train", "reward/mean"),)
    remedies: ClassVar[tuple[str, ...]] = (
        "recheck-reward",
        "larger-batch",
        "raise-learning-rate",
        "float32-weights",
        "easier-prompts",
        "harder-prompts",
        "refilter-prompts",
        "dynamic-sampling",
    )
    references: ClassVar[tuple[str, ...]] = ("doi.org/10.1093/biomet/30.1-2.81",)
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 2
    cadence: ClassVar[int] = 5

    min_readings: int = 20
    """Readings of the outcome that a verdict needs, too."""

    def examine(self, chart: Chart) -> RuleResult:
        """Require an outcome that has not risen, then look for the reason."""
        name = outcome_metric(chart)
        series = chart.series(name or "")
        if name is None or series.start is None or len(series) < self.min_readings:
            return None
        if outcome_rose(chart) or is_solved(chart) or has_lost_outcome(chart):
            return None
        if never_moved(series):
            return None  # other rules tell a constant reward from one that is never earned
        reason = reason_for_no_rise(chart)
        levels = flat_levels(series)
        fell = levels.start - levels.now > levels.noise
        noise = f"{'beyond' if fell else 'within'} its noise of {levels.noise:.2g}"
        within = noise if levels.is_bounded else "without a lasting rise"
        clause = f"; {reason.clause}" if reason.clause else ""
        noun = outcome_noun(chart).capitalize()
        course = f"{FELL if fell else ''} {levels.start:.3g} → {levels.now:.3g}"
        text = f"{noun}{course}, {within}{clause}."
        evidence = cite_all(chart, name, *reason.metrics)
        return Sighting("info", text, evidence, reason.remedies)
