"""Whether longer responses earn less from some step on, as the loss shows.

Before the first update of a batch every importance ratio is 1, so a loss that is averaged over
tokens is minus the mean advantage of a token: minus the covariance of advantage and length, by the
mean length, as advantages sum to zero over the responses. It rises where longer responses earn
less. A loss that is averaged per response stays at zero and shows nothing.
"""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import step_noise
from grpodoctor.runs.series import WINDOW, Series

_REWARD, _ACCURACY = "reward/mean", "accuracy/train"
_LOSS, _ADVANTAGE = "optimizer/loss", "advantage/mean"
_LENGTH, _TRUNCATED = "length/mean", "length/truncated_rate"
_CLIPS = ("clip/any_rate", "clip/low_rate", "clip/high_rate")

_LATEST = 20
"""Readings that show the relation now."""
_NEARBY = 10
"""Readings before and after the step that are compared."""
_BEFORE = 15
"""Readings before the step, from which the noise of one is estimated."""
_ERRORS = 5.0
"""Standard errors by which both the reward and the loss changed at the same step. The largest of
150 healthy runs of a trained policy, curricula among them, is 4.1."""
_LOST = 0.25
"""Share of the reward that is lost."""
_LEFT = 1 / 3
"""Share of the change of the loss that is left: the policy learns to write shorter responses."""
_AT_ONCE = 3
"""Readings of the length before and after the step: it may have been growing."""
_CHANGED = 1.3
"""Factor of the length from which responses changed with the reward: the prompts became harder, a
limit was lowered, or the policy is another one. With batches whose mean scatters by a tenth, chance
gives it to one pair of three in a hundred."""
_MORE_CUT = 0.05
"""Growth of the truncated share from which a limit may be the reason."""
_MOST_CLIPPED = 0.02
"""Clip fraction up to which ratios are 1."""


class PayByLength(NamedTuple):
    """A step from which on longer responses earn less."""

    step: int
    before: float
    after: float
    """The mean reward around the step."""
    advantage_before: float
    advantage_after: float
    """The mean advantage of a token."""


def longer_earn_less(chart: Chart) -> PayByLength | None:
    """The step since which longer responses earn less, at first with the same responses."""
    name = _ADVANTAGE if chart.is_fresh(_ADVANTAGE) else _LOSS
    sign = 1 if name == _ADVANTAGE else -1
    series, reward = chart.series(name), chart.series(_REWARD)
    if not len(reward):
        reward = chart.series(_ACCURACY)
    if len(series) < _BEFORE + _NEARBY or not chart.is_fresh(name):
        return None
    now = sign * series.mean(_LATEST)
    if not now <= -series.noise(_LATEST):
        return None  # the usual case: nearly five standard errors
    if any(chart.series(clip).level(_LATEST) > _MOST_CLIPPED for clip in _CLIPS):
        return None
    count = min(len(series), len(reward), WINDOW)
    steps = series.steps(count)
    if reward.steps(count) != steps:
        return None
    values, advantages = reward.tail(count), [sign * value for value in series.tail(count)]
    found = _change(steps, values, advantages)
    if found is None:
        return None
    lost = found.advantage_before - found.advantage_after
    if not now <= found.advantage_before - _LEFT * lost:
        return None
    return found if _are_the_same(chart, found.step) else None


def _change(steps: list[int], values: list[float], advantages: list[float]) -> PayByLength | None:
    """The step at which the reward and the advantage of a token fell beyond chance."""
    if not math.isfinite(math.fsum(values) + math.fsum(advantages)):
        return None
    at = _deepest_fall(values)
    if at is None or not (_is_certain(values, at) and _is_certain(advantages, at)):
        return None
    before, after = _levels(values, at)
    if not before > 0 or not after <= (1 - _LOST) * before:
        return None
    return PayByLength(steps[at], before, after, *_levels(advantages, at))


def _deepest_fall(values: list[float]) -> int | None:
    """The index of the first reading after the largest fall of the level; None without a fall."""
    places = range(_BEFORE, len(values) - _NEARBY + 1)
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    falls = [(2 * sums[at] - sums[at - _NEARBY] - sums[at + _NEARBY], at) for at in places]
    if not falls:
        return None
    fall, at = max(falls)
    return at if fall > 0 else None


def _levels(values: list[float], at: int) -> tuple[float, float]:
    """Means before and after a reading."""
    return statistics.fmean(values[at - _NEARBY : at]), statistics.fmean(values[at : at + _NEARBY])


def _is_certain(values: list[float], at: int) -> bool:
    """Whether a level falls beyond chance at a reading."""
    before, after = _levels(values, at)
    error = step_noise(values[:at]) * math.sqrt(2 / _NEARBY)
    return before - after > _ERRORS * error


def _are_the_same(chart: Chart, step: int) -> bool:
    """Whether responses were as long right after a step as right before it, and cut as often."""
    before, after = _around(chart.series(_LENGTH), step)
    cut_before, cut_after = _around(chart.series(_TRUNCATED), step)
    if not before > 0 or cut_after - cut_before >= _MORE_CUT:
        return False
    return 1 / _CHANGED <= after / before <= _CHANGED


def _around(series: Series, step: int) -> tuple[float, float]:
    """Means right before a step and from it on; zeros if there are none."""
    before = [value for at, value in series if at < step][-_AT_ONCE:]
    after = [value for at, value in series if at >= step][:_AT_ONCE]
    return (statistics.fmean(before), statistics.fmean(after)) if before and after else (0.0, 0.0)
