"""GRP007."""

from __future__ import annotations

import math
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.distillation import DISTILLED, is_distilled
from grpodoctor.rules.shared.health.run_health import (
    CRITIC_IS_BASELINE,
    RECENT,
    has_critic,
    is_solved,
)
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_ACCURACY, _SIZE = "accuracy/train", "groups/size"
_EFFECTIVE, _ZERO_VARIANCE = "groups/effective_rate", "groups/zero_variance_rate"


class GroupTooSmallForPassRate(Rule):
    """Group and batch are too small for the pass rate: hardly any group is mixed.

    What it sees:
        The pass rate p and the group size G. At most 1 - p^G - (1-p)^G of the groups contain both a
        correct and an incorrect response (mixed groups). The finding states the group size at which
        half of the groups are mixed. It is a warning if a batch has less than one mixed group and
        neither reward nor accuracy has risen.

    Why it matters:
        Only mixed groups contribute gradient. At a pass rate of .4 %, groups of eight are mixed in
        3 % of the cases: a batch of sixteen prompts has none in half of the steps.

    Evidence it needs:
        `accuracy/train`, and the group size from `groups/size` or the config. Optional: prompts per
        batch.

    Remedies:
        Larger groups, or a larger batch; prompts with a pass rate of 20 to 80 %; dynamic sampling.

    When it is wrong:
        Prompts differ, so the true share of mixed groups is lower than this bound; GRP001 and
        GRP002 report it where it is logged. A reward with partial credit has variance in groups
        without a success.

    References:
        DAPO, arXiv 2503.14476, section 3.2; MaxRL, arXiv 2602.02710, for low pass rates.
    """

    code: ClassVar[str] = "GRP007"
    name: ClassVar[str] = "group-too-small-for-pass-rate"
    condition: ClassVar[Condition] = "zero-rewards"
    summary: ClassVar[str] = "Group and batch are too small for the pass rate."
    inputs: ClassVar[tuple[Need, ...]] = (_ACCURACY,)
    remedies: ClassVar[tuple[str, ...]] = (
        "larger-groups",
        "refilter-prompts",
        "easier-prompts",
        "dynamic-sampling",
    )
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476", "arXiv 2602.02710")
    persistence: ClassVar[int] = 3
    clearance: ClassVar[int] = 2 * RECENT

    info_share: float = 0.15
    """Share of mixed groups for `info`: most of the sampling is wasted."""
    warning_groups: float = 1.0
    """Mixed groups per batch for a warning: below one, many steps have no gradient at all."""
    min_readings: int = 20
    """Readings whose mean is the pass rate: at .4 % and 128 responses a single reading is 0 or one
    success."""
    effective_share: float = 0.3
    """Share of groups with reward variance above which partial credit gives a gradient anyway."""
    largest_group: int = 1024
    """Largest group that is judged or recommended; beyond it, easier prompts are the remedy."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compute the bound from the pass rate and the group size."""
        accuracy = chart.series(_ACCURACY)
        if accuracy.last > 0.5 or len(accuracy) < self.min_readings:
            return None  # all-correct groups are GRP001's
        if is_distilled(chart):
            return DISTILLED
        if has_critic(chart):
            return CRITIC_IS_BASELINE
        size = self._size(chart)
        if size is None or not 2 <= size <= self.largest_group:
            return None
        rate = _mean(accuracy.tail(2 * RECENT))
        if not 0 < rate < 0.5:
            return None
        mixed = 1 - rate**size - (1 - rate) ** size
        if mixed > self.info_share or is_solved(chart):
            return None
        if self._has_partial_credit(chart):
            return None
        return self._sighting(chart, rate, size, mixed)

    def _size(self, chart: Chart) -> float | None:
        if len(chart.series(_SIZE)):
            return chart.series(_SIZE).level(RECENT)
        knob = chart.knobs.get("group_size")
        return float(knob) if isinstance(knob, int) and not isinstance(knob, bool) else None

    def _has_partial_credit(self, chart: Chart) -> bool:
        effective, flat = chart.series(_EFFECTIVE), chart.series(_ZERO_VARIANCE)
        if len(effective):
            return effective.level(2 * RECENT) >= self.effective_share
        return len(flat) > 0 and 1 - flat.level(2 * RECENT) >= self.effective_share

    def _sighting(self, chart: Chart, rate: float, size: float, mixed: float) -> Sighting:
        needed = min(math.ceil(math.log(0.5) / math.log1p(-rate)), self.largest_group)
        text = (
            f"At a pass rate of {rate:.2%}, at most {mixed:.1%} of groups of {size:.0f} are mixed; "
            f"use groups of {needed}."
        )
        prompts = chart.knobs.get("prompts_per_batch")
        is_starved = isinstance(prompts, int) and mixed * prompts < self.warning_groups
        evidence = cite_all(chart, _ACCURACY, _SIZE, _ZERO_VARIANCE)
        if is_starved and outcome_has_risen(chart) is False:
            return Sighting("warning", text, evidence)
        return Sighting("info", text, evidence)


def _mean(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else 0.0
