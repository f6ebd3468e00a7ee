"""REW011."""

from __future__ import annotations

import math
from typing import ClassVar

from grpodoctor.rules.base import (
    Evidence,
    Need,
    Rule,
    RuleResult,
    Severity,
    Sighting,
    cite,
    cite_all,
)
from grpodoctor.rules.shared.health.run_health import has_improved, is_solved, reading_noise
from grpodoctor.rules.shared.reward_parts.reward_outliers import RewardOutliers, reward_outliers
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.support.numbers import part_of
from grpodoctor.vocabulary.conditions import Condition

_REWARD, _STD, _SIZE = "reward/mean", "reward/std", "groups/size"
_GROUP_STD = "groups/reward_std"


class NoisyReward(Rule):
    """The mean reward varies so much from step to step that progress cannot be seen.

    What it sees:
        The step-to-step noise of the mean reward, compared with the spread of the rewards and the
        number of prompts in a batch. The finding is a warning if the noise is several times what
        the batch explains and the reward has not risen. It is `info`, with the smallest batch that
        would do, if the batch is too small to show progress, and if the noise is twice what the
        spread within groups and between the prompts of a batch explains. Batches whose spread is
        ten times the usual one have single rewards far outside the others, such as -100 among 0
        and 1: several of them are a warning if they are low and the reward has not risen. High
        ones are a note, since a rare success may earn that much on purpose.

    Why it matters:
        The mean of a batch scatters by at most the spread of rewards divided by the square root of
        the number of prompts. Noise beyond that comes from elsewhere: a reward model or judge that
        changes from step to step, prompts sorted by difficulty, or an environment that fails now
        and then. Noise within it hides progress, and makes the gradient as noisy. A reward far
        outside the others decides the advantages of its group and hides the differences of the
        other responses.

    Evidence it needs:
        `reward/mean` and `reward/std`; rewards far outside the others also show in
        `groups/reward_std`. Optional: the number of prompts of a batch, from the config, and
        `groups/size`.

    Remedies:
        If the groups explain less than half of the noise, check whether a batch contains different
        prompts. Use more prompts per batch; 64 prompts with 8 responses are the common advice.
        Score the same responses twice to measure the noise of the judge.

    When it is wrong:
        Batches of different tasks (multi-task mixtures, curricula) vary by more than their size
        explains.

    References:
        McCandlish et al. 2018, An Empirical Model of Large-Batch Training, arXiv 1812.06162.
    """

    code: ClassVar[str] = "REW011"
    name: ClassVar[str] = "noisy-reward"
    condition: ClassVar[Condition] = "noisy-reward"
    summary: ClassVar[str] = "The reward varies from step to step more than the batch explains."
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD, (_STD, _GROUP_STD))
    remedies: ClassVar[tuple[str, ...]] = ("larger-batch", "recheck-reward")
    references: ClassVar[tuple[str, ...]] = ("arXiv 1812.06162",)
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 4
    cadence: ClassVar[int] = 10

    min_readings: int = 30
    """Readings from which the noise of one reading is known to about a tenth."""
    excess: float = 3.0
    """Noise as a multiple of what the batch explains at most, with all responses to a prompt alike.
    Runs of the bundled trainer reach 1.0, as the theory says."""
    possible_excess: float = 2.0
    """Noise as a multiple of what the groups explain, for `info`. Theory allows 1, and healthy runs
    of the bundled trainer show it; the noise and both spreads are known to a tenth."""
    hiding_noise: float = 0.3
    """Noise as a share of the spread of rewards, above which a batch is too small. Sixteen prompts
    have at most .25; a gain of a tenth of the spread then takes fifty steps to show."""
    most_times: float = 1000.0
    """Largest batch that is recommended, as a multiple of the present one."""
    enough_noise: float = 0.125
    """Noise as a share of the spread of rewards that 64 prompts have at most."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the noise of the mean with the spread of the rewards."""
        series = chart.series(_REWARD)
        if len(series) < self.min_readings or is_solved(chart):
            return None
        if (outliers := reward_outliers(chart)) is not None:
            return self._judge_outliers(chart, outliers)
        spread = chart.series(_STD).level(WINDOW)
        if not spread > 0:  # also where only the spread of the groups is logged
            return None
        noise = reading_noise(series)
        prompts = chart.knobs.get("prompts_per_batch")
        if isinstance(prompts, int) and not isinstance(prompts, bool):
            explained = spread / math.sqrt(prompts)
            if noise > self.excess * explained:
                return self._judge_excess(chart, noise, explained)
            exact = self._explained_by_groups(chart, spread, prompts)
            if exact is not None and noise > self.possible_excess * exact:
                times = f"{noise / exact:.1f} times what the groups of a batch explain"
                text = f"The mean reward varies by {noise:.2g} per step, {times}."
                return Sighting("info", text, self._evidence(chart, exact))
        if noise / spread < self.hiding_noise or has_improved(chart) is not False:
            return None
        ratio = min(noise / (self.enough_noise * spread), self.most_times**0.5)
        advice = f"use {ratio**2:.0f} times as many prompts per batch"
        if isinstance(prompts, int) and not isinstance(prompts, bool):
            advice = f"use {math.ceil(prompts * ratio**2)} prompts per batch"
        text = f"The mean reward varies by {noise:.2g} per step; {advice}."
        return Sighting("info", text, self._evidence(chart, self.enough_noise * spread))

    def _explained_by_groups(self, chart: Chart, spread: float, prompts: int) -> float | None:
        """The noise that the spread within groups and between prompts explains; None if unknown.

        The responses of a batch vary within their groups, and the prompts of a batch among each
        other. If all prompts of a batch are alike, the second part is missing in the batch, but
        not from one batch to the next.
        """
        size, within = chart.series(_SIZE).level(WINDOW), chart.series(_GROUP_STD).level(WINDOW)
        if not size > 1 or not 0 < within <= spread:
            return None
        variance = min(within**2 * size / (size - 1), spread**2)
        between = spread**2 - variance
        return math.sqrt(variance / (size * prompts) + between / prompts)

    def _judge_outliers(self, chart: Chart, found: RewardOutliers) -> Sighting:
        text = (
            f"{part_of(found.batches, found.readings, 'batches', 'have')} "
            "rewards far outside the others: "
            f"their standard deviation reaches {found.largest:.2g}, usually {found.usual:.2g}."
        )
        is_harm = not found.are_high and outcome_has_risen(chart) is False
        severity: Severity = "warning" if is_harm else "info"
        evidence = (cite(chart, found.spread, found.usual), cite(chart, _REWARD))
        return Sighting(
            severity, text, evidence, ("recheck-reward",), find_onset=lambda: found.first_step
        )

    def _judge_excess(self, chart: Chart, noise: float, explained: float) -> Sighting:
        text = f"The mean reward varies by {noise:.2g} per step; the batch explains {explained:.2g}"
        evidence = self._evidence(chart, explained)
        if outcome_has_risen(chart) is False:
            return Sighting("warning", f"{text}, and it has not risen.", evidence)
        return Sighting("info", f"{text}.", evidence)

    def _evidence(self, chart: Chart, bound: float) -> tuple[Evidence, ...]:
        return (cite(chart, _REWARD, bound), *cite_all(chart, _STD, _SIZE))
