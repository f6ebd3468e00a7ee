"""ENT003."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    RECENT,
    current_metric,
    is_solved,
    outcome_lost,
    outcome_metric,
)
from grpodoctor.rules.shared.shapes.trend import (
    outcome_has_risen,
    outcome_start,
    outcome_text,
    start_level,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_ALIKE = ("groups/text_similarity", "groups/duplicate_rate")
_SPREAD = ("groups/reward_std", "reward/std", "groups/effective_rate")


class DiversityCollapse(Rule):
    """Responses to a prompt become alike: entropy, distinct text and reward spread fall.

    What it sees:
        Three signs at once, each compared with its own start: entropy below half, distinct text
        among the responses to one prompt below half, and the spread of rewards below half. The
        finding is a warning if neither reward nor accuracy has risen, and `info` if one has.

    Why it matters:
        A group teaches by the differences between its responses. Entropy alone falls in every run
        that learns. If text and reward spread fall with it, the group has no differences left,
        although the prompts are not solved.

    Evidence it needs:
        Entropy, `groups/text_similarity` or `groups/duplicate_rate`, and a spread of the rewards.
        The recorder and rollout dumps with prompts give the last two.

    Remedies:
        Raise the upper clip bound or the sampling temperature, use larger groups, and fewer updates
        per batch.

    When it is wrong:
        Responses to solved prompts are alike; the rule then reports nothing. In a task with few
        possible answers, such as multiple choice, responses are alike from the start.

    References:
        Cui et al. 2025, arXiv 2505.22617; Broder 1997, On the Resemblance and Containment of
        Documents.
    """

    code: ClassVar[str] = "ENT003"
    name: ClassVar[str] = "diversity-collapse"
    condition: ClassVar[Condition] = "diversity-loss"
    summary: ClassVar[str] = "Responses to a prompt become alike while nothing improves."
    inputs: ClassVar[tuple[Need, ...]] = (ENTROPY_METRICS, _ALIKE, _SPREAD)
    remedies: ClassVar[tuple[str, ...]] = (
        "clip-higher",
        "raise-temperature",
        "larger-groups",
        "fewer-updates",
    )
    references: ClassVar[tuple[str, ...]] = ("arXiv 2505.22617",)
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 2 * RECENT
    judges_levels: ClassVar[bool] = True

    remaining_share: float = 0.5
    """Share of the starting value that counts as lost, for each sign. Healthy runs of the bundled
    trainer lose entropy (to .38) and distinct text (to .65), and keep .8 of the reward's spread;
    all three fall together only when prompts are solved or the policy collapses."""
    least_start: float = 0.02
    """Starting value below which a sign has nothing to lose."""

    def examine(self, chart: Chart) -> RuleResult:
        """Require all three signs, then look at the outcome."""
        entropy = current_metric(chart, ENTROPY_METRICS)
        if not self._is_lost(chart, entropy):
            return None  # the usual case
        alike, spread = current_metric(chart, _ALIKE), current_metric(chart, _SPREAD)
        if not (self._is_lost(chart, spread) and self._is_lost(chart, alike)):
            return None
        if is_solved(chart):
            return None
        has_risen, lost = outcome_has_risen(chart), outcome_lost(chart)
        is_better = has_risen is not False and lost < self.remaining_share
        start, level = start_level(chart.series(entropy)), chart.series(entropy).level(RECENT)
        share = level / start if start else 0.0
        similarity = chart.series(alike).level(RECENT)
        text = (
            f"Entropy is at {share:.0%} of its start, responses to a prompt are {similarity:.0%} "
            f"similar; {outcome_text(chart)}."
        )
        evidence = cite_all(
            chart,
            entropy,
            alike,
            spread,
            outcome_metric(chart),
            starts=outcome_start(chart) | {entropy: start},
        )
        return Sighting("info" if is_better else "warning", text, evidence)

    def _is_lost(self, chart: Chart, name: str) -> bool:
        """Whether less than half of the starting value is left; of the distinct part of texts."""
        series = chart.series(name)
        start = start_level(series)
        if start is None:
            return False
        is_alike = name in _ALIKE
        start, last = (1 - start, 1 - series.last) if is_alike else (start, series.last)
        if start < self.least_start or last > self.remaining_share * start:
            return False
        level = series.level(RECENT)
        return (1 - level if is_alike else level) <= self.remaining_share * start
