"""Batches in which single rewards are far outside the others."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW

_REWARD = "reward/mean"
_SPREADS = ("reward/std", "groups/reward_std")
_FACTOR = 10.0
"""Multiple of the usual spread. One of n responses with the reward v has a spread of about
|v| / sqrt(n), so v is 80 usual spreads away in a batch of 64, and further in a larger one. Rewards
between two bounds never have a spread above half their distance."""
_MIN_BATCHES = 3
_MAX_SHARE = 0.25
"""Share of the batches; more of them are the usual case, whatever the median is."""
_MIN_SPAN = 3
"""Readings from the first to the last such batch, for each of them: a burst is an event."""


@dataclass(frozen=True, slots=True)
class RewardOutliers:
    """The batches of the latest readings that have such rewards."""

    spread: str
    """The metric that shows them."""
    batches: int
    readings: int
    usual: float
    """Spread of the rewards of a usual batch."""
    largest: float
    """The largest spread."""
    first_step: int
    are_high: bool
    """Whether they raise the mean: rare successes may earn so much on purpose."""


def reward_outliers(chart: Chart) -> RewardOutliers | None:
    """The batches whose spread single rewards explain; None if there are none.

    Such a reward moves the mean of its batch in its own direction, so that all these batches are on
    one side of the usual mean.
    """
    name = next((name for name in _SPREADS if len(chart.series(name))), _SPREADS[0])
    series, rewards = chart.series(name), chart.series(_REWARD)
    if series.start is None or not len(series):
        return None
    if not series.window_max() > _FACTOR * series.start.level:
        return None  # the usual case, without the median of the window
    spreads, steps = series.tail(WINDOW), series.steps(WINDOW)
    usual = max(statistics.median(spreads), series.start.level)
    if not usual > 0 or not max(spreads) > _FACTOR * usual:
        return None
    places = [place for place, spread in enumerate(spreads) if spread > _FACTOR * usual]
    if len(places) < _MIN_BATCHES or len(places) > _MAX_SHARE * len(spreads):
        return None
    if places[-1] - places[0] < _MIN_SPAN * len(places):
        return None
    means = dict(zip(rewards.steps(WINDOW), rewards.tail(WINDOW), strict=True))
    middle = statistics.median(means.values())
    moved = [means.get(steps[place], middle) - middle for place in places]
    if not (max(moved) < 0 or min(moved) > 0):
        return None
    return RewardOutliers(
        name, len(places), len(spreads), usual, max(spreads), steps[places[0]], min(moved) > 0
    )
