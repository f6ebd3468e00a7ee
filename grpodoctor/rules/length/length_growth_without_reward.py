"""LEN004."""

from __future__ import annotations

import math
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    is_solved,
    outcome_lost,
    outcome_metric,
)
from grpodoctor.rules.shared.shapes.trend import (
    OUTCOMES,
    began_half_way,
    has_risen,
    outcome_has_risen,
    outcome_start,
    outcome_text,
    start_level,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_LENGTH = "length/mean"


class LengthGrowthWithoutReward(Rule):
    """Responses have become much longer, and neither reward nor accuracy has risen.

    What it sees:
        A mean length of at least twice its starting value, while no outcome (reward or accuracy, in
        training or held out) is above its starting value. A length that has fallen again by more
        than half of the growth is a note: a public run searched with 300 tokens for twenty steps,
        and its reward rose once it needed a third of them.

    Why it matters:
        Longer reasoning that raises the reward is a success of RL. Length without reward only costs
        time: growing from 300 to 1,100 tokens makes each step almost four times as expensive. A
        common reason is a loss that penalizes long incorrect responses less per token. The growth
        ends at the length limit.

    Evidence it needs:
        `length/mean`, and `reward/mean` or `accuracy/train`.

    Remedies:
        Use a denominator that does not depend on the response's own length; penalize responses that
        approach the limit.

    When it is wrong:
        The more the length grows, the clearer a rise of the reward must be that excuses it: from
        one standard error at twice the starting length to three at four times. A small batch may
        hide such a rise.
        A prompt mix that becomes harder lengthens responses and lowers the reward without any
        fault. If the reward collapses while responses grow, LEN006 reports it.

    References:
        Dr. GRPO, arXiv 2503.20783; DAPO, arXiv 2503.14476, sections 3.3 and 3.4.
    """

    code: ClassVar[str] = "LEN004"
    name: ClassVar[str] = "length-growth-without-reward"
    condition: ClassVar[Condition] = "length-growth"
    summary: ClassVar[str] = "Responses grow much longer while the reward does not rise."
    inputs: ClassVar[tuple[Need, ...]] = (_LENGTH, ("reward/mean", "accuracy/train"))
    remedies: ClassVar[tuple[str, ...]] = ("token-level-loss", "dr-grpo", "soft-overlong")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.20783", "arXiv 2503.14476")
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 2 * RECENT
    judges_levels: ClassVar[bool] = True

    min_growth: float = 2.0
    """Multiple of the starting value. In healthy public runs without a rising reward the length
    stays within a factor of 1.4."""
    min_start: float = 32
    """Tokens of the shortest starting length that is judged: one word doubles a sum or a label."""
    min_readings: int = 20
    """Minimum readings, so that the starting value and the current level do not overlap."""
    large_growth: float = 4.0
    """Multiple of the starting value from which `large_growth_errors` are needed."""
    large_growth_errors: float = 3.0
    """Standard errors of the reward's rise that excuse such a growth. Each doubling of the length
    that `min_growth` exceeds needs two more than one."""
    collapse_loss: float = 0.35
    """Share of the best outcome whose loss REW002 and LEN006 report instead."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the length with its start, then the outcomes with theirs."""
        series = chart.series(_LENGTH)
        start = start_level(series)
        if start is None or start < self.min_start or series.last < self.min_growth * start:
            return None
        level = series.level(RECENT)
        if len(series) < self.min_readings or level < self.min_growth * start:
            return None
        if is_solved(chart) or not self._is_without_reward(chart, level / start):
            return None
        if outcome_lost(chart) >= self.collapse_loss:
            return None
        text = (
            f"Mean length grew from {start:.0f} to {level:.0f} tokens while {outcome_text(chart)}."
        )
        peak = series.highest.level if series.highest else level
        is_receding = level < (start + peak) / 2
        if is_receding:
            text = (
                f"Mean length grew from {start:.0f} to {peak:.0f} tokens without a clear rise "
                f"in reward, and fell to {level:.0f}."
            )
        evidence = cite_all(
            chart,
            _LENGTH,
            outcome_metric(chart),
            "length/truncated_rate",
            starts=outcome_start(chart) | {_LENGTH: start},
        )
        severity: Severity = "info" if is_receding else "warning"
        onset = began_half_way(series, start)
        return Sighting(severity, text, evidence, find_onset=onset, ends_severer=is_receding)

    def _is_without_reward(self, chart: Chart, growth: float) -> bool:
        """Whether an outcome is logged, and none has risen enough for so much longer responses."""
        doublings = math.log2(min(growth, self.large_growth) / self.min_growth)
        errors = 1 + (self.large_growth_errors - 1) * doublings
        rises = [has_risen(chart.series(name), errors) for name in OUTCOMES]
        known = [rise for rise in rises if rise is not None]
        return outcome_has_risen(chart) is False or (bool(known) and not any(known))
