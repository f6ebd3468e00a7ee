"""GRP005."""

from __future__ import annotations

import statistics
from typing import ClassVar

from grpodoctor.rules.base import (
    NOT_LOGGED,
    Need,
    Rule,
    RuleResult,
    Severity,
    Sighting,
    cite,
    cite_all,
)
from grpodoctor.rules.shared.health.run_health import RECENT, has_critic
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_ADVANTAGE = "advantage/mean"
_LOWEST, _HIGHEST = "advantage/min", "advantage/max"
_POSITIVE, _ZERO = "advantage/positive_rate", "advantage/zero_rate"
_REWARD, _ACCURACY = "reward/mean", "accuracy/train"
_LOSS = "optimizer/loss"
_SIZE = "group_size"
_LOSS_IS_ADVANTAGE = frozenset({"trl", "ms-swift"})
"""Frameworks whose loss is minus the weighted mean of the advantages, plus the KL penalty."""


class AdvantagesWithoutBaseline(Rule):
    """The advantages equal the rewards: no baseline is subtracted.

    What it sees:
        A mean advantage that follows the mean reward from step to step, or batches with positive
        advantages and without a negative one. Advantages that compare the responses to a prompt
        with each other sum to zero in every group, whatever the rewards. TRL logs no advantages,
        but its loss is minus their weighted mean: a loss far below zero at every step shows that
        they do not sum to zero. Such a finding is `info` if the config is unknown.

    Why it matters:
        A single response per prompt cannot be compared with others, and trainers then use the
        reward as the advantage. With rewards above zero every response becomes more likely, also
        the incorrect ones; with rewards below zero all become less likely. The run then learns from
        differences between prompts and from chance, with many times the gradient noise, and no
        logged curve shows that this is not GRPO.

    Evidence it needs:
        `advantage/mean`, `advantage/min` or `advantage/positive_rate`, or `optimizer/loss` in logs
        of TRL; `reward/mean` or `accuracy/train`. Optional: `advantage/max`, `advantage/zero_rate`,
        the settings `group_size` and `advantage`.

    Remedies:
        Eight or more responses per prompt; otherwise a critic, or a baseline over the batch.

    When it is wrong:
        REINFORCE without a baseline is intended.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1; Williams 1992, Simple Statistical
        Gradient-Following Algorithms, for what a baseline is worth.
    """

    code: ClassVar[str] = "GRP005"
    name: ClassVar[str] = "advantages-without-baseline"
    condition: ClassVar[Condition] = "wrong-advantages"
    judged_by_outcome: ClassVar[bool] = True
    summary: ClassVar[str] = "The advantages equal the rewards: no baseline is subtracted."
    inputs: ClassVar[tuple[Need, ...]] = (
        (_ADVANTAGE, _LOWEST, _POSITIVE, _LOSS),
        (_REWARD, _ACCURACY),
    )
    remedies: ClassVar[tuple[str, ...]] = ("larger-groups",)
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 2402.03300",
        "Williams 1992, Simple Statistical Gradient-Following Algorithms",
    )
    clearance: ClassVar[int] = RECENT
    judges_levels: ClassVar[bool] = True

    max_distance: float = 0.2
    """Typical distance of mean advantage and mean reward, as a multiple of the reward's spread. The
    advantage is a mean over tokens and the reward a mean over responses: runs with one response per
    prompt show .01 to .05. Where groups are compared, the distance is that of the reward from 0, at
    least one spread."""
    min_spread: float = 0.5
    """Least spread of the mean advantages, as a multiple of that of the rewards: equal ones spread
    alike, centred ones do not spread."""
    min_readings: int = 5
    """Minimum readings: that many batches do not agree by chance."""
    centred_loss: float = 0.5
    """Typical distance of TRL's loss from zero that advantages in units of their spread do not
    reach: weights by length shift it by the spread of the lengths, as a share of their mean, times
    the correlation of length and reward."""
    min_losses: int = 20
    """Readings of the loss, all of them below half of that."""
    rounding: float = 1e-6
    """Share of tokens that the rounding of two shares can hide."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for batches without a negative advantage, then compare the two means."""
        if has_critic(chart):
            return None
        if not chart.fresh.isdisjoint((_ADVANTAGE, _LOWEST, _POSITIVE)):
            return self._never_negative(chart) or self._follows_reward(chart)
        if chart.manifest.framework not in _LOSS_IS_ADVANTAGE:
            return NOT_LOGGED
        return self._loss_is_far_below_zero(chart)

    def _loss_is_far_below_zero(self, chart: Chart) -> Sighting | None:
        losses = chart.series(_LOSS).tail(self.min_losses)
        if len(losses) < self.min_losses or not losses[-1] < -self.centred_loss / 2:
            return None
        typical = statistics.median(losses)
        if not (max(losses) < -self.centred_loss / 2 and typical <= -self.centred_loss):
            return None
        text = f"No baseline is subtracted: the mean advantage, minus the loss, is {-typical:.2g}."
        severity: Severity = "warning" if chart.knobs.get("advantage") == "group" else "info"
        return Sighting(severity, text, (cite(chart, _LOSS, 0.0), cite(chart, _REWARD)))

    def _never_negative(self, chart: Chart) -> Sighting | None:
        above, at = chart.value(_POSITIVE), chart.value(_ZERO)
        has_negative = above is not None and at is not None and above + at < 1 - self.rounding
        if has_negative or (chart.value(_LOWEST) or 0) < 0:
            return None  # the usual case
        lowest, highest = chart.series(_LOWEST), chart.series(_HIGHEST)
        positive, zero = chart.series(_POSITIVE), chart.series(_ZERO)
        if len(lowest) >= self.min_readings and len(highest) >= self.min_readings:
            none_below = min(lowest.tail(2 * RECENT)) >= 0
            name, some_above = _LOWEST, min(highest.tail(self.min_readings)) > 0
        elif len(positive) >= self.min_readings and len(zero) >= self.min_readings:
            shares = zip(positive.tail(2 * RECENT), zero.tail(2 * RECENT), strict=False)
            none_below = all(above + at >= 1 - self.rounding for above, at in shares)
            name, some_above = _POSITIVE, min(positive.tail(self.min_readings)) > 0
        else:
            return None
        if not (none_below and some_above):
            return None
        count = min(len(chart.series(name)), 2 * RECENT)
        text = f"No advantage is negative in {count} batches: no baseline is subtracted."
        return Sighting("warning", text, cite_all(chart, name, _REWARD, _ACCURACY))

    def _follows_reward(self, chart: Chart) -> Sighting | None:
        if not chart.is_fresh(_ADVANTAGE):
            return None
        advantages, rewards = dict(chart.series(_ADVANTAGE)), chart.series(_REWARD)
        # Where no response was rewarded both are zero, whatever baseline is subtracted.
        pairs = [
            (advantages[step], reward) for step, reward in rewards if reward and step in advantages
        ]
        if len(pairs) < self.min_readings:
            return None
        pairs = pairs[-2 * RECENT :]
        spread = statistics.pstdev(reward for _, reward in pairs)
        distance = statistics.median(abs(advantage - reward) for advantage, reward in pairs)
        if not spread or not distance <= self.max_distance * spread:
            return None
        # Advantages that stay at 0 are centred, even if a reward that fell comes close to them.
        if not statistics.pstdev(mean for mean, _ in pairs) >= self.min_spread * spread:
            return None
        mean, reward = chart.value(_ADVANTAGE), chart.value(_REWARD)
        means = f"the mean advantage is {mean:.3g}, the mean reward {reward:.3g}"
        text = f"No baseline is subtracted: {means}"
        if chart.knobs.get(_SIZE) == 1:
            text += " (1 response per prompt)"
        evidence = (cite(chart, _ADVANTAGE, 0.0), cite(chart, _REWARD))
        return Sighting("warning", f"{text}.", evidence)
