"""Whether the mean reward is the weighted sum of the means of its parts.

TRL sums the parts of a response with fixed weights, and leaves out a part that is None. If no part
is None, the mean reward is the same weighted sum of the means of the parts at every step, whatever
the weights are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from grpodoctor.rules.shared.reward_components import MEAN, PREFIX
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.support.arrays import np

_REWARD = "reward/mean"
_SUMS_PARTS = frozenset({"trl"})
"""Frameworks that log all parts of the reward, and sum them with fixed weights."""
MIN_READINGS = 40
"""Readings in which all parts are known. Each half of them is fitted on its own, so that weights
that change once leave one half without a rest."""
_ROWS_PER_PART = 6
_REST = 0.05
"""Standard deviation of the rest, as a share of that of the reward. It is below 1e-6 where every
response has all parts, and 1e-3 where a log has three digits."""


@dataclass(frozen=True, slots=True)
class UnscoredParts:
    """A mean reward that is no weighted sum of its parts."""

    rest: float
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
    rest = min(_rest(rows[:middle]), _rest(rows[middle:]))
    if rest < _REST:
        return None
    missing = [
        name
        for name, part in zip(names, parts, strict=True)
        if sum(step in part for step in rewards) < len(rewards)
    ]
    return UnscoredParts(rest, tuple(names), tuple(missing))


def _is_part(name: str) -> bool:
    return name.startswith(PREFIX) and name.endswith(MEAN)


def _rest(rows: Sequence[Sequence[float]]) -> float:
    """Standard deviation that the best weights leave, as a share; 0 if the reward is constant."""
    table = np.array(rows, np.float64)
    table -= table.mean(axis=0)
    rewards, parts = table[:, 0], table[:, 1:]
    spread = float(np.square(rewards).sum())
    if not 0 < spread < math.inf:
        return 0.0
    weights = np.linalg.lstsq(parts, rewards, rcond=None)[0]
    return math.sqrt(float(np.square(rewards - parts @ weights).sum()) / spread)
