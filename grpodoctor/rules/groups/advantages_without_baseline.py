"""GRP005."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.run_health import RECENT, has_critic
from grpodoctor.runs.chart import Chart

_ADVANTAGE = "advantage/mean"
_REWARD = "reward/mean"
_SIZE = "group_size"


@dataclass(frozen=True)
class AdvantagesWithoutBaseline(Rule):
    """The advantages are the rewards themselves: nothing is subtracted from them.

    What it sees:
        A mean advantage that follows the mean reward from step to step. Advantages that compare the
        responses to a prompt with each other sum to zero in every group, whatever the rewards.

    Why it matters:
        With one response per prompt there is nothing to compare it with, and trainers then pass the
        reward on as it is. With rewards above zero every response is made likelier, the wrong ones
        too; with rewards below zero all are made less likely. What is learnt comes from the
        difference of prompts and from chance, at many times the noise, and no curve of the log
        shows that this is not GRPO.

    Evidence it needs:
        `advantage/mean` and `reward/mean`. Better with the setting `group_size`.

    Remedies:
        Eight or more responses per prompt; else a critic, or a baseline over the batch.

    When it is wrong:
        REINFORCE without a baseline, if that is what was wanted.

    References:
        DeepSeekMath, arXiv 2402.03300, section 4.1; Williams 1992, Simple Statistical
        Gradient-Following Algorithms, for what a baseline is worth.
    """

    code: ClassVar[str] = "GRP005"
    name: ClassVar[str] = "advantages-without-baseline"
    summary: ClassVar[str] = "The advantages are the rewards themselves, without a baseline."
    inputs: ClassVar[tuple[Need, ...]] = (_ADVANTAGE, _REWARD)
    remedies: ClassVar[tuple[str, ...]] = ("larger-groups",)
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 2402.03300",
        "Williams 1992, Simple Statistical Gradient-Following Algorithms",
    )
    clearance: ClassVar[int] = RECENT

    share: float = 0.2
    """Typical distance of mean advantage and mean reward, in spreads of the reward. It is a mean
    over tokens there and over responses here: runs with one response per prompt show .01 to .05,
    and where groups are compared it is the reward's own distance from 0, a spread at the least."""
    readings: int = 5
    """Fewest readings: as many batches do not agree by chance."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the two means, batch by batch."""
        if has_critic(chart):
            return None
        advantages, rewards = dict(chart.series(_ADVANTAGE)), chart.series(_REWARD)
        # Where nobody was rewarded both are zero, whatever is subtracted.
        pairs = [
            (advantages[step], reward) for step, reward in rewards if reward and step in advantages
        ]
        if len(pairs) < self.readings:
            return None
        pairs = pairs[-2 * RECENT :]
        spread = statistics.pstdev(reward for _, reward in pairs)
        apart = statistics.median(abs(advantage - reward) for advantage, reward in pairs)
        if not spread or not apart <= self.share * spread:
            return None
        mean, reward = chart.value(_ADVANTAGE), chart.value(_REWARD)
        text = (
            f"the advantages are the rewards themselves: their mean is {mean:.3g} with a mean "
            f"reward of {reward:.3g}; {self._why(chart)}"
        )
        return Sighting("warning", text, (cite(chart, _ADVANTAGE, 0.0), cite(chart, _REWARD)))

    def _why(self, chart: Chart) -> str:
        if chart.knobs.get(_SIZE) == 1:
            return "one response per prompt has nothing to be compared with"
        return "as with one response per prompt, or without any baseline"
