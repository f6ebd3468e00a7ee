"""Whether the mean reward is the weighted sum of the means of its parts.

TRL sums the parts of a response with fixed weights, and leaves out a part that is None. If no part
is None, the mean reward is the same weighted sum of the means of the parts at every step, whatever
the weights are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from grpodoctor.rules.shared.health.reward_components import MEAN, PREFIX
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.support.arrays import np

_REWARD = "reward/mean"
_SUMS_PARTS = frozenset({"trl"})
"""Frameworks that log all parts of the reward, and sum them with fixed weights."""
MIN_READINGS = 40
"""Readings in which all parts are known. Each half of them is fitted on its own, so that weights
that change once leave one half without a residual."""
_ROWS_PER_PART = 10
"""Readings for each part: five in a half, for a weight and its change."""
_LEAST_RESIDUAL = 0.05
"""Standard deviation of the residual, as a share of that of the reward. It is below 1e-6 where
every response has all parts, and 1e-3 where a log has three digits."""


@dataclass(frozen=True, slots=True)
class UnscoredParts:
    """A mean reward that is no weighted sum of its parts."""

    residual: float
    """Share of the reward's standard deviation that no weights explain."""
    parts: tuple[str, ...]
    missing: tuple[str, ...]
    """Parts without a reading at some steps: no response of these batches has them."""


def unscored_parts(chart: Chart) -> UnscoredParts | None:
    """What the parts leave unexplained; None if nothing, or if the log does not tell."""
    if chart.manifest.framework not in _SUMS_PARTS:
        return None
    names = sorted(name for name in chart.names() if _is_part(name))
    rewards = dict(list(chart.series(_REWARD))[-WINDOW:])
    parts = [dict(chart.series(name)) for name in names]
    rows = [
        [rewards[step], *(part[step] for part in parts)]
        for step in rewards
        if all(math.isfinite(part.get(step, math.nan)) for part in parts)
    ]
    if len(names) < 2 or len(rows) < max(MIN_READINGS, _ROWS_PER_PART * len(names)):
        return None
    middle = len(rows) // 2
    residual = min(_residual(rows[:middle]), _residual(rows[middle:]))
    if residual < _LEAST_RESIDUAL:
        return None
    missing = [
        name
        for name, part in zip(names, parts, strict=True)
        if sum(step in part for step in rewards) < len(rewards)
    ]
    return UnscoredParts(residual, tuple(names), tuple(missing))


def _is_part(name: str) -> bool:
    return name.startswith(PREFIX) and name.endswith(MEAN)


def _residual(rows: Sequence[Sequence[float]]) -> float:
    """Standard deviation that the best weights leave, as a share; 0 if the reward is constant.

    The weights may change from reading to reading by the same amount, as those of a schedule do.
    """
    table = np.array(rows, np.float64)
    time_N1 = np.linspace(-1, 1, len(table))[:, None]
    table = np.hstack([table, time_N1 * table[:, 1:]])
    table -= table.mean(axis=0)
    rewards, parts = table[:, 0], table[:, 1:]
    spread = float(np.square(rewards).sum())
    if not 0 < spread < math.inf:
        return 0.0
    weights = np.linalg.lstsq(parts, rewards, rcond=None)[0]
    return math.sqrt(float(np.square(rewards - parts @ weights).sum()) / spread)
