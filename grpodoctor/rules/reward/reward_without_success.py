"""REW009."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import NOT_LOGGED, Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.health.component_roles import only_form_is_earned, task_components
from grpodoctor.rules.shared.health.reward_components import component_name
from grpodoctor.rules.shared.health.run_health import RECENT, fresh_metric
from grpodoctor.rules.shared.health.success_measures import accuracy_is_contradicted
from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.rules.shared.shapes.trend import change, start_level
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition

_SUCCESS = ("accuracy/heldout", "reward/heldout", "accuracy/train")
_REWARD = "reward/mean"


class RewardWithoutSuccess(Rule):
    """The reward rises by shaping alone: success stays at its lowest value.

    What it sees:
        A success measure (held-out evaluation or training accuracy) that has had the same value, at
        or below zero, in every reading, while the reward is well above its start. Without such a
        measure, the components that only correct responses earn, judged by their names. A training
        accuracy of 0 does not count if the best reward of each batch is far above the mean.

    Why it matters:
        Partial credit for format, length or intermediate steps should lead to the task. A policy
        that collects it without ever solving the task optimizes the partial credit alone: the
        reward curve looks like progress, but success stays at zero.

    Evidence it needs:
        `accuracy/heldout`, `reward/heldout` or `accuracy/train`, and `reward/mean`. Optional:
        `reward/component/<name>/mean`, `reward/max`.

    Remedies:
        Check that a correct answer is recognized. Use easier prompts until some succeed, and give
        shaping less weight than success.

    When it is wrong:
        A task whose first success comes late looks the same until then. An evaluation that is
        broken, such as one with another answer format, also stays at zero.

    References:
        TRL issue 3903 (format learned, accuracy zero); Ng, Harada and Russell 1999, Policy
        Invariance under Reward Transformations.
    """

    code: ClassVar[str] = "REW009"
    name: ClassVar[str] = "reward-without-success"
    condition: ClassVar[Condition] = "reward-hacking"
    summary: ClassVar[str] = "The reward rises while success stays at its lowest value."
    inputs: ClassVar[tuple[Need, ...]] = (_REWARD,)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "easier-prompts", "reweight-rewards")
    references: ClassVar[tuple[str, ...]] = ("github.com/huggingface/trl/issues/3903",)
    persistence: ClassVar[int] = 1
    clearance: ClassVar[int] = 1

    min_evaluations: int = 5
    """Held-out evaluations without a success. At 64 prompts and a rate of 1 %, five of them have
    none with a probability of .04."""
    min_batches: int = 30
    """Training readings without a success, where nothing is held out; see `min_evaluations`."""
    min_rise: float = 4.0
    """Standard errors by which the reward must have risen."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for a success measure that never moved, and for a reward that did."""
        fresh = fresh_metric(chart, _SUCCESS)
        if fresh is not None and chart.series(fresh).last > 0:
            return None  # the usual case: it has moved
        logged = [name for name in _SUCCESS if len(chart.series(name))]
        tasks = [] if logged else task_components(chart)
        if not logged and not tasks:
            return NOT_LOGGED
        name = self._unmoved(chart, logged, tasks)
        if name is None:
            return None
        success = chart.series(name)
        reward = chart.series(_REWARD)
        rise, error = change(reward)
        start = start_level(reward)
        if start is None or not rise > self.min_rise * error:
            return None
        subject = f"Component {component_name(name)}" if tasks else name
        text = (
            f"{subject} has been {success.last:g} in all {len(success)} readings "
            f"while the reward rose from {start:.3g} to {reward.level(RECENT):.3g}."
        )
        return Sighting("warning", text, (cite(chart, name), cite(chart, _REWARD, start)))

    def _unmoved(self, chart: Chart, logged: list[str], tasks: list[str]) -> str | None:
        """The measure of success that never moved; None if it moved, or is not to be trusted."""
        if not logged:
            never = all(self._never_succeeded(chart, name) for name in tasks)
            return tasks[0] if never and not only_form_is_earned(chart) else None  # else REW004
        name = next((each for each in logged if chart.is_fresh(each)), logged[0])
        if not self._never_succeeded(chart, name):
            return None
        is_training = name == "accuracy/train"
        return None if is_training and accuracy_is_contradicted(chart, chart.series(name)) else name

    def _never_succeeded(self, chart: Chart, name: str) -> bool:
        success = chart.series(name)
        if not success.last <= 0:
            return False  # the usual case
        is_held_out = name.endswith("/heldout")
        needed = self.min_evaluations if is_held_out else self.min_batches
        return len(success) >= needed and never_moved(success)
