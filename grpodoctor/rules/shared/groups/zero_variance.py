"""Why groups have no variance, in logs that do not say so."""

from __future__ import annotations

import math
from typing import Literal

from grpodoctor.rules.shared.health.component_roles import only_form_is_earned, success_component
from grpodoctor.rules.shared.health.monitored_success import monitored_success
from grpodoctor.rules.shared.health.run_health import (
    CEILING,
    FAILED_OUTCOME,
    RECENT,
    is_near_ceiling,
    is_solved,
    typical_share,
    zero_variance_metric,
)
from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series


def zero_variance_cause(chart: Chart) -> Literal["all-correct", "all-incorrect"] | None:
    """Why groups have no variance in a log that does not split them; None if unknown.

    With a binary reward, at most a share `accuracy` of the groups is all-correct, and at most
    `1 - accuracy` is all-incorrect.
    """
    name = zero_variance_metric(chart)
    zero_variance = typical_share(chart.series(name or ""), RECENT) if name else math.nan
    if chart.value("groups/cancelled_rate"):
        return None
    accuracy = chart.series(_accuracy_of(chart))
    if len(accuracy):
        correct = accuracy.level(RECENT)
        if zero_variance > max(correct, 1 - correct) + 0.1:
            return None
        return "all-correct" if correct >= FAILED_OUTCOME else "all-incorrect"
    success = success_component(chart)
    if success is not None and chart.series(success).level(RECENT) <= 1 - CEILING:
        return "all-incorrect"
    reward = chart.series("reward/mean")
    if is_solved(chart) or (_is_nearly_full(reward) and not only_form_is_earned(chart)):
        return "all-correct"
    return "all-incorrect" if _is_nearly_empty(reward) else None


def _accuracy_of(chart: Chart) -> str:
    """The accuracy, or a component that judges the same responses and is not paid."""
    name = "accuracy/train"
    return name if len(chart.series(name)) else monitored_success(chart) or name


def _is_nearly_empty(reward: Series) -> bool:
    """Whether a reward is exactly 0, or in [0, 1] and so low that its equal groups earn nothing."""
    if not len(reward) or not any(reward.tail(RECENT)):
        return bool(len(reward))
    return reward.level(RECENT) <= 1 - CEILING and reward.is_within(0, 1)


def _is_nearly_full(reward: Series) -> bool:
    """Whether a reward in [0, 1] is so high that its equal groups can only be the correct ones.

    A reward of .955 with 93 % equal groups, in a public run: at least .885 of the groups earn the
    full reward. A reward that stays at one level below 1 is a grade that every response receives.
    """
    return len(reward) >= RECENT and is_near_ceiling(reward) and not never_moved(reward)
