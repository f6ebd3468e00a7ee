"""REW005."""

from __future__ import annotations

import math
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite
from grpodoctor.rules.shared.run_health import RECENT, level_at
from grpodoctor.runs.chart import BASELINE, Chart, Series
from grpodoctor.vocabulary.conditions import Condition

_ACCURACY = "accuracy/train"
_REWARD = "reward/mean"
_NOISE_READINGS = 50


class RewardHacking(Rule):
    """Accuracy falls while the reward of the same responses does not.

    What it sees:
        Training accuracy below its best level of the run, beyond its noise, while the reward of the
        same responses is no lower than it was then, within its noise. Both the median and the mean
        must have fallen: with eight responses per step, accuracy takes few values, and its median
        jumps between them.

    Why it matters:
        Reward and correctness have diverged: the policy earns the reward by other means, such as
        listing many answers, length, or format. This is the earliest sign of it, since a run has
        far more training responses than held-out evaluations. The reward curve looks like success.

    Evidence it needs:
        `accuracy/train` from a judge other than the reward, and `reward/mean`, for twenty steps.

    Remedies:
        Read the responses with the highest reward that are not correct; make the reward as strict
        as the judge. Then add a KL penalty, or return to the best checkpoint.

    When it is wrong:
        If the reward is correctness itself, the two cannot diverge, and the rule never reports
        anything. A small fall needs time: a verifier that accepts any of several answers was
        exploited from step 60 on and reported at step 107. A reward that trades some correctness
        for brevity or safety on purpose looks the same, and so does a judge that changed during the
        run.

    References:
        Gao et al. 2022, Scaling Laws for Reward Model Overoptimization, arXiv 2210.10760.
    """

    code: ClassVar[str] = "REW005"
    name: ClassVar[str] = "reward-hacking"
    condition: ClassVar[Condition] = "reward-hacking"
    former_names: ClassVar[tuple[str, ...]] = ("accuracy-falls-while-reward-rises",)
    summary: ClassVar[str] = "Accuracy falls while the reward of the same responses does not."
    inputs: ClassVar[tuple[Need, ...]] = (_ACCURACY, _REWARD)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "kl-penalty", "stop-training")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2210.10760",)
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 2 * RECENT

    min_loss: float = 0.1
    """Minimum share of the best accuracy that must be lost; a smaller loss is ordinary drift."""
    critical_loss: float = 0.5
    """Share whose loss is critical; see REW003."""
    min_standard_errors: float = 3.0
    """Standard errors of the difference of the two levels. Noise that reward and accuracy share
    moves both, so chance alone rarely separates them."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the current accuracy with the best one, and the reward now and then."""
        accuracy, best = chart.series(_ACCURACY), chart.series(_ACCURACY).highest
        if best is None or best.level <= 0 or len(accuracy) < BASELINE + RECENT:
            return None
        now = accuracy.level(RECENT)
        # `not >=` below also covers a mean that is unknown.
        fall = min(best.level - now, best.mean - accuracy.mean(RECENT))
        if not fall >= self.min_loss * best.level or not fall > self.min_standard_errors * _error(
            accuracy
        ):
            return None
        reward = chart.series(_REWARD)
        then, reward_now = level_at(reward, best.step), reward.level(RECENT)
        if then is None or not reward_now >= then - _error(reward):
            return None
        text = (
            f"Accuracy fell from {best.level:.3g} (step {best.step}) to {now:.3g} "
            f"while the reward went from {then:.3g} to {reward_now:.3g}."
        )
        severity: Severity = "critical" if fall >= self.critical_loss * best.level else "warning"
        evidence = (cite(chart, _ACCURACY, best.level), cite(chart, _REWARD, then))
        return Sighting(severity, text, evidence)


def _error(series: Series) -> float:
    """Standard error of the difference between a block's median and the latest level."""
    noise = series.noise(_NOISE_READINGS)
    return noise * math.sqrt(math.pi / 2 * (1 / BASELINE + 1 / RECENT))
