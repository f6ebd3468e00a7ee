"""Whether a run learns from a teacher instead of a reward."""

from __future__ import annotations

from grpodoctor.rules.shared.health.whole_run import never_moved
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.values import NotApplicable

TEACHER = "kl/teacher"

DISTILLED = NotApplicable(
    "the run learns from a teacher, so its gradient does not depend on the reward"
)

REFERENCE_IS_TEACHER = NotApplicable(
    "the run learns from a teacher, so its reference need not be the starting policy"
)


def has_teacher(chart: Chart) -> bool:
    """Whether a divergence to a teacher is logged, with or without a reward."""
    return bool(len(chart.series(TEACHER)))


def is_distilled(chart: Chart) -> bool:
    """Whether a divergence to a teacher is logged, and no reward or one that never moved."""
    if not has_teacher(chart):
        return False
    reward = chart.series("reward/mean")
    return not len(reward) or never_moved(reward)
