"""GRP009."""

from __future__ import annotations

import statistics
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import current_metric
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_SPREADS = ("groups/reward_std", "reward/std")
_UNDIVIDED = frozenset({"centred", "leave_one_out", "none", "gae"})


class TinyRewardDifferences(Rule):
    """Rewards differ by less than a thousandth, and the division makes full advantages of it.

    What it sees:
        A spread of the rewards below a thousandth in reading after reading, but not zero, and
        advantages that are divided by it.

    Why it matters:
        Rewards that only differ by rounding, by jitter of a judge or by a small tie breaker give
        advantages as large as those of right and wrong answers. The run then learns the noise, at
        the full size of its updates, while reward and gradient norm look normal.

    Evidence it needs:
        `groups/reward_std` or `reward/std`. Optional: the setting `advantage`.

    Remedies:
        Round rewards to what they mean, or use advantages without the division. Check that the part
        of the reward that tells right from wrong is not always zero.

    When it is wrong:
        Rewards on a small scale by intention, such as log-probabilities per token.

    References:
        Dr. GRPO, arXiv 2503.20783, on the division by the standard deviation.
    """

    code: ClassVar[str] = "GRP009"
    name: ClassVar[str] = "tiny-reward-differences"
    condition: ClassVar[Condition] = "noisy-reward"
    summary: ClassVar[str] = "Rewards differ by less than a thousandth, but are normalized."
    inputs: ClassVar[tuple[Need, ...]] = (_SPREADS,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "dr-grpo")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.20783",)
    judges_levels: ClassVar[bool] = True

    max_spread: float = 1e-3
    """Standard deviation of the rewards. A single point of a thousand-point scale, or one right
    answer in a million, has more."""
    readings: int = 10
    """Latest readings; all must be small, and their median is reported."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge the spread over the latest readings."""
        if chart.knobs.get("advantage") in _UNDIVIDED:
            return None
        name = current_metric(chart, _SPREADS)
        values = chart.series(name).tail(self.readings)
        if len(values) < self.readings or not 0 < min(values) <= max(values) < self.max_spread:
            return None
        text = f"Rewards differ by {statistics.median(values):.2g} and are divided by that."
        return Sighting("info", text, cite_all(chart, name, "reward/mean"))
