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
NEARBY = 10
"""Readings before and after the step that are compared."""
BEFORE = 15
"""Readings before the step, from which the noise of one is estimated."""
_ERRORS = 5.0
"""Standard errors by which both the reward and the loss changed at the same step. Of 144 healthy
trainings, curricula among them, two have both falls by four errors and one by five; with the other
conditions, none is an alarm (tests/benchmarks/bench_chance.py)."""
_LOST = 0.25
"""Share of the reward that is lost."""
_LEFT = 1 / 3
"""Share of the change of the loss that is left: the policy learns to write shorter responses."""
_AT_ONCE = 3
"""Readings of the length before and after the step: it may have been growing."""
_CHANGED = 1.3
"""Factor of the length from which responses changed with the reward: the prompts became harder, a
limit was lowered, or the policy is another one. With batches whose mean scatters by a tenth, chance
gives it to two pairs of such means in a thousand."""
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
    if len(series) < BEFORE + NEARBY or not chart.is_fresh(name):
        return None
    now = sign * series.mean(_LATEST)
    if now > 0 or not now <= -series.noise(_LATEST):
        return None  # the usual case: the bound is 4.5 standard errors of this mean
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
    if at is None or not all(falls_at(each, at, _ERRORS) for each in (values, advantages)):
        return None
    before, after = _levels(values, at)
    if not before > 0 or not after <= (1 - _LOST) * before:
        return None
    return PayByLength(steps[at], before, after, *_levels(advantages, at))


def _deepest_fall(values: list[float]) -> int | None:
    """The index of the first reading after the largest fall; None for too few readings."""
    places = range(BEFORE, len(values) - NEARBY + 1)
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    falls = [(2 * sums[at] - sums[at - NEARBY] - sums[at + NEARBY], at) for at in places]
    return max(falls)[1] if falls else None


def _levels(values: list[float], at: int) -> tuple[float, float]:
    """Means before and after a reading."""
    return statistics.fmean(values[at - NEARBY : at]), statistics.fmean(values[at : at + NEARBY])


def falls_at(values: list[float], at: int, errors: float) -> bool:
    """Whether a level falls at a reading by more than a number of standard errors.

    Args:
        values: readings, oldest first.
        at: the index of the reading.
        errors: standard errors of the difference of the means before and after.
    """
    before, after = _levels(values, at)
    error = step_noise(values[:at]) * math.sqrt(2 / NEARBY)
    return before - after > errors * error


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
