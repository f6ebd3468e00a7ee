"""REW005."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import NOT_LOGGED, Need, Rule, RuleResult, Severity, Sighting, cite
from grpodoctor.rules.shared.health.monitored_success import monitored_success
from grpodoctor.rules.shared.health.reward_components import component_name
from grpodoctor.rules.shared.health.run_health import RECENT, first_step_where, level_at
from grpodoctor.rules.shared.health.whole_run import falls_over_run, quarter_means, rises_over_run
from grpodoctor.rules.shared.reward_parts.judge_disagreement import judge_disagreement
from grpodoctor.rules.shared.reward_parts.kept_reward import (
    fall_from_best,
    level_error,
    reward_is_kept,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import BASELINE
from grpodoctor.vocabulary.conditions import Condition

_ACCURACY = "accuracy/train"
_REWARD = "reward/mean"


class RewardHacking(Rule):
    """Accuracy falls while the reward of the same responses does not.

    What it sees:
        Training accuracy below its best level of the run, beyond its noise, while the reward of the
        same responses is no lower than it was then, within its noise. If accuracy lost a third of
        that level, the reward may have lost two fifths of this share, since accuracy is a part of
        most rewards. Both the median and the mean must have fallen: with eight responses per step,
        accuracy takes few values, and its median jumps between them. Or accuracy that falls slowly
        over the whole run while the reward rises over it: the trends show what no single level
        does.

        As a note, also a component of weight 0 that accepts far more or far fewer responses than
        the paid judge does. Both are 0 or 1 for the same responses, so the difference of their
        means is the least share on which they disagree. It must be a fifth of what the more lenient
        of the two accepts.

    Why it matters:
        Reward and correctness have diverged: the policy earns the reward by other means, such as
        listing many answers, length, or format. This is the earliest sign of it, since a run has
        far more training responses than held-out evaluations. The reward curve looks like success.

    Evidence it needs:
        `accuracy/train` from a judge other than the reward, and `reward/mean`, for twenty steps. A
        component that is named for success and is no part of the reward takes the place of the
        accuracy, where that is not logged. The note requires both components with all their digits,
        as exact shares of the same number of responses.

    Remedies:
        Read the responses with the highest reward that are not correct; make the reward as strict
        as the judge. Then add a KL penalty, or return to the best checkpoint.

    When it is wrong:
        If the reward is correctness itself, the two cannot diverge, and the rule never reports
        anything. A small fall needs time: a verifier that accepts any of several answers was
        exploited from step 60 on and reported at step 107. A reward that trades some correctness
        for brevity or safety on purpose looks the same, and so does a judge that changed during the
        run. A monitor that is stricter or more lenient than the reward on purpose gets the note,
        unless its name says so.

    References:
        Gao et al. 2022, Scaling Laws for Reward Model Overoptimization, arXiv 2210.10760. Huang et
        al. 2025, Pitfalls of Rule- and Model-based Verifiers, arXiv 2505.22203.
    """

    code: ClassVar[str] = "REW005"
    name: ClassVar[str] = "reward-hacking"
    condition: ClassVar[Condition] = "reward-hacking"
    former_names: ClassVar[tuple[str, ...]] = ("accuracy-falls-while-reward-rises",)
    summary: ClassVar[str] = "Accuracy falls while the reward of the same responses does not."
    inputs: ClassVar[tuple[Need, ...]] = ((_ACCURACY, _REWARD),)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "kl-penalty", "stop-training")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2210.10760",)
    persistence: ClassVar[int] = 5
    clearance: ClassVar[int] = 2 * RECENT
    judges_levels: ClassVar[bool] = True

    min_loss: float = 0.1
    """Minimum share of the best accuracy that must be lost; a smaller loss is ordinary drift."""
    critical_loss: float = 0.5
    """Share whose loss is critical; see REW003."""
    min_standard_errors: float = 3.0
    """Standard errors of the difference of the two levels. Noise that reward and accuracy share
    moves both, so chance alone rarely separates them."""
    min_disagreement: float = 0.2
    """Share of what a monitor accepts that the paid judge must at least reject, or the reverse.
    Smaller ones are usual: rules reject correct answers in other forms (arXiv 2505.22203),
    and an equal share of both errors cancels."""
    judged_readings: int = 20
    """Latest readings that are compared for it."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the current accuracy with the best one, and the reward now and then."""
        name = _ACCURACY if len(chart.series(_ACCURACY)) else monitored_success(chart)
        if name is None:
            return NOT_LOGGED
        if len(chart.series(name)) < BASELINE + RECENT:
            return None
        return (
            self._fall_from_best(chart, name)
            or self._slow_fall(chart, name)
            or (self._disagreement(chart) if name != _ACCURACY else None)
        )

    def _fall_from_best(self, chart: Chart, name: str) -> Sighting | None:
        accuracy = chart.series(name)
        best = accuracy.highest
        if best is None or best.level <= 0:
            return None
        now = accuracy.level(RECENT)
        # `not >=` also covers a level or mean that is unknown. Means and noise take longer.
        if not best.level - now >= self.min_loss * best.level:
            return None
        fall, least = fall_from_best(accuracy), self.min_loss * best.level
        if not fall >= max(least, self.min_standard_errors * level_error(accuracy)):
            return None
        reward = chart.series(_REWARD)
        then, reward_now = level_at(reward, best.step), reward.level(RECENT)
        if then is None:
            return None
        if not reward_now >= then - level_error(reward) and not reward_is_kept(chart):
            return None
        text = (
            f"{_noun(name)} fell from {best.level:.3g} (step {best.step}) to {now:.3g} "
            f"while the reward went from {then:.3g} to {reward_now:.3g}."
        )
        evidence = (cite(chart, name, best.level), cite(chart, _REWARD, then))
        return Sighting(self._severity(fall, best.level), text, evidence)

    def _slow_fall(self, chart: Chart, name: str) -> Sighting | None:
        """Accuracy and reward that part slowly, over the whole run."""
        accuracy, reward = chart.series(name), chart.series(_REWARD)
        if not falls_over_run(accuracy) or not rises_over_run(reward):
            return None  # noise that both share moves them the same way
        first, now = quarter_means(accuracy)
        if not first > 0 or not first - now >= self.min_loss * first:
            return None
        then, reward_now = quarter_means(reward)
        noun = "accuracy" if name == _ACCURACY else f"component {component_name(name)}"
        text = (
            f"Over the run, {noun} fell from {first:.3g} to {now:.3g} while the reward rose from "
            f"{then:.3g} to {reward_now:.3g}."
        )
        middle = (first + now) / 2
        onset = partial(first_step_where, accuracy, lambda value: value < middle)
        evidence = (cite(chart, name, first), cite(chart, _REWARD, then))
        return Sighting(self._severity(first - now, first), text, evidence, find_onset=onset)

    def _disagreement(self, chart: Chart) -> Sighting | None:
        """A monitor that accepts far more, or far fewer, responses than the paid judge."""
        found = judge_disagreement(chart, self.judged_readings)
        if found is None:
            return None
        if not found.least(self.min_standard_errors) >= self.min_disagreement:
            return None
        is_rejecting = found.paid < found.accepted
        judge, monitor = (
            ("rejects correct", "lenient") if is_rejecting else ("accepts wrong", "strict")
        )
        text = (
            f"Monitor {component_name(found.monitor)} accepts {found.accepted:.0%} of responses "
            f"and {component_name(found.judge)} pays {found.paid:.0%}: the judge {judge} ones, or "
            f"the monitor is {monitor}."
        )
        evidence = (cite(chart, found.monitor), cite(chart, found.judge))
        return Sighting("info", text, evidence, ("recheck-reward",), condition="wrong-reward")

    def _severity(self, fall: float, level: float) -> Severity:
        return "critical" if fall >= self.critical_loss * level else "warning"


def _noun(name: str) -> str:
    return "Accuracy" if name == _ACCURACY else f"Component {component_name(name)}"
