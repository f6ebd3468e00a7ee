"""A component that judges the responses without a part in their reward."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grpodoctor.rules.shared.health.component_roles import task_components
from grpodoctor.rules.shared.health.reward_components import component_means
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW

_REWARD = "reward/mean"
_ROUNDING = 1e-4
"""Difference of a logged sum from the sum of its logged parts, as a share."""


def monitored_success(chart: Chart) -> str | None:
    """The component, in [0, 1], that judges success and is not paid; None if there is none.

    The others add up to the reward in every reading without it, so its weight is 0.
    """
    names = component_means(chart)
    found = [name for name in task_components(chart) if _is_unpaid(chart, name, names)]
    return found[0] if len(found) == 1 else None


def _is_unpaid(chart: Chart, task: str, names: Sequence[str]) -> bool:
    others = [name for name in names if name != task]
    columns = [chart.series(name) for name in (_REWARD, task, *others)]
    if not others or not _adds_up([series.last for series in columns]):
        return False  # the usual case
    rows = list(zip(*(series.tail(WINDOW) for series in columns), strict=False))
    is_seen = sum(abs(row[1]) > _ROUNDING for row in rows) >= min(RECENT, len(rows))
    return is_seen and columns[1].is_within(0, 1) and all(map(_adds_up, rows))


def _adds_up(row: Sequence[float]) -> bool:
    """Whether a reward is the sum of the values after the first component."""
    reward, _, *others = row
    return abs(math.fsum(others) - reward) <= _ROUNDING * max(1.0, abs(reward))
