"""The held-out sets of a run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from grpodoctor.rules.shared.health.run_health import RECENT, current_metric, level_at
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT
from grpodoctor.vocabulary.plain_names import PLAIN_NAMES


def heldout_metrics(chart: Chart) -> list[str]:
    """The mean over all held-out sets, followed by the single sets if there are several.

    A rule judges each of them: a loss on one set may vanish in the mean of many.
    """
    mean = current_metric(chart, HELDOUT)
    start = f"{mean}/set/"
    sets = sorted(name for name in chart.names() if name.startswith(start))
    return [mean, *(name for name in sets if len(sets) > 1 and chart.is_fresh(name))]


HELD_OUT_LOSS: Condition = "held-out-loss"
"""Training prompts that are solved while held-out ones are not."""
REWARD_HACKING: Condition = "reward-hacking"
"""The reason of such a difference, where the log shows what the reward pays for."""

LOW_ACCURACY = 0.8
"""Held-out accuracy below which training prompts that are all solved are no success."""


class LowAccuracy(NamedTuple):
    """A held-out accuracy that is low."""

    level: float
    has_risen: bool
    """Whether it is above the first evaluation; a single one is no sign of the contrary."""
    noun: str
    """What it is of."""


def low_heldout_accuracy(chart: Chart) -> LowAccuracy | None:
    """The level of the latest evaluations, if it is low.

    Where only a held-out reward is logged, it counts if it is a share of successes and has lost
    half of its first level. Held-out prompts may be harder than those of the training, so a low
    level says nothing. The median of the latest evaluations lags behind a policy that learns, and
    so do rare evaluations: the latest one must be low as well, and lower than the training accuracy
    was at that step.
    """
    is_accuracy = len(chart.series(_HELDOUT_ACCURACY)) > 0
    if not is_accuracy and not counts_successes(chart, _HELDOUT_REWARD, "reward/mean"):
        return None
    series = chart.series(_HELDOUT_ACCURACY if is_accuracy else _HELDOUT_REWARD)
    unit = 1.0 if is_accuracy else full_mark(chart)
    level, last, first = (
        value / unit for value in (series.level(_LATEST), series.last, series.head(1)[0])
    )
    has_risen = len(series) < 2 or level > first
    if not max(level, last) < LOW_ACCURACY:
        return None
    if _training_level(chart, series.last_step) - max(level, last) < _NEAR_TRAINING:
        return None
    if not is_accuracy and not level < _LOST * first:
        return None
    noun = PLAIN_NAMES[_HELDOUT_ACCURACY if is_accuracy else _HELDOUT_REWARD]
    return LowAccuracy(level, has_risen, noun)


def _training_level(chart: Chart, step: int) -> float:
    """The training accuracy at a step, or the reward if it is in [0, 1]; 1 if neither is known."""
    accuracy, reward = chart.series("accuracy/train"), chart.series("reward/mean")
    if not len(accuracy) and not (len(reward) and reward.is_within(0, 1)):
        return 1.0
    series = accuracy if len(accuracy) else reward
    then = level_at(series, step)
    return series.level(RECENT) if then is None else then


def confirms_success(chart: Chart) -> bool:
    """Whether the latest evaluations solve nearly all held-out prompts as well.

    A held-out reward confirms it only if some prompt failed: a reward function without information
    pays for all of them.
    """
    accuracy, reward = chart.series(_HELDOUT_ACCURACY), chart.series(_HELDOUT_REWARD)
    if len(accuracy):
        return accuracy.level(_LATEST) >= _HIGH_ACCURACY
    if not len(reward) or not any(value < 1 for _, value in reward):
        return False
    return _HIGH_ACCURACY <= reward.level(_LATEST) <= 1


_HELDOUT_ACCURACY, _HELDOUT_REWARD = "accuracy/heldout", "reward/heldout"

_LOST = 0.5
"""Share of the first held-out reward below which most of it is lost: the noise of twenty responses
does not take half of a share of .3."""

_NEAR_TRAINING = 0.1
"""Difference of the training accuracy and a held-out one up to which both tell the same."""

_HIGH_ACCURACY = 0.95
"""Held-out accuracy that a reward function without information cannot explain."""

_SAME_SCALE = 0.2
"""Difference of the first evaluation and the training reward at that step up to which both may be
the same function: prompts differ in difficulty, and a full reward is 1 in both."""


_RATIO_READINGS = 20
"""Readings of reward and accuracy whose ratio is compared."""

_RATIO_ERROR = 0.01
"""Share of a full mark by which the reward may differ from the accuracy times the full mark."""


def full_mark(chart: Chart) -> float:
    """The reward of a correct response, if the accuracy shows that it is more than 1; else 1.

    A reward that is a fixed multiple of the accuracy at each step pays for nothing else.
    """
    accuracy, reward = chart.series("accuracy/train"), chart.series("reward/mean")
    steps, values = reward.steps(_RATIO_READINGS), reward.tail(_RATIO_READINGS)
    rewards = dict(zip(steps, values, strict=True))
    shares = dict(zip(accuracy.steps(_RATIO_READINGS), accuracy.tail(_RATIO_READINGS), strict=True))
    common = [step for step in rewards if shares.get(step)]
    if len(common) < RECENT:
        return 1.0
    mark = statistics.median(rewards[step] / shares[step] for step in common)
    is_exact = all(
        abs(rewards[step] - mark * shares[step]) <= _RATIO_ERROR * mark for step in common
    )
    return mark if is_exact and mark > 1 else 1.0


def counts_successes(chart: Chart, name: str, train: str) -> bool:
    """Whether a held-out metric is a share of successes that training prompts could reach as well.

    An accuracy is. A held-out reward is if it is between 0 and a full mark like the training
    reward, and at the first evaluation was about as high as that was then, or since the start of
    the run.
    """
    if name.startswith("accuracy/"):
        return True
    heldout, training = chart.series(name), chart.series(train)
    if not len(heldout) or not len(training):
        return False
    unit = full_mark(chart)
    if unit > 1:
        training = chart.series("reward/mean")
    if not (heldout.is_within(0, unit) and training.is_within(0, unit)):
        return False
    step, first = next(iter(heldout))
    then = level_at(training, step)
    if then is None:
        return False
    started = training.opening.level if training.opening else then
    lowest, highest = min(started, then), max(started, then)
    return lowest - _SAME_SCALE * unit <= first <= highest + _SAME_SCALE * unit


_LATEST = 3
"""Readings before a step, and since it, that are compared."""

_MIN_TREND = 2.0
"""Standard score of the rise: chance gives it to one held-out metric in forty, and the fall of a
policy would lower the metric."""


_KEPT = 0.9
"""Share of a held-out level that is left where the policy has lost nothing."""

_OF_BEST = 0.75
"""Share of the best held-out level, which is that of a few evaluations and so above the usual one:
a fall that is dated late must not begin from evaluations that had fallen already."""

_LEAST = 0.1
"""Held-out level below which an evaluation has too few successes to lose any."""


def heldout_level_kept_since(chart: Chart, since: int) -> tuple[str, float] | None:
    """The held-out metric that is as high as before a step, and its level since then.

    Evaluations that are all equal say nothing: a log may repeat the same one.

    Args:
        chart: the run.
        since: the step at which the training outcome fell.

    Returns:
        The metric and its level; None if there is none, or too few evaluations.
    """
    for name in HELDOUT:
        series = chart.series(name)
        readings = list(zip(series.steps(WINDOW), series.tail(WINDOW), strict=True))
        before = [value for step, value in readings if step < since][-_LATEST:]
        later = [value for step, value in readings if step > since]
        if len(before) < _LATEST or len(later) < _FEWEST or len({*before, *later}) == 1:
            continue
        then, now = statistics.median(before), statistics.median(later[-_LATEST:])
        best = max(_running_medians([value for _, value in readings]))
        if min(now, later[-1]) >= max(_KEPT * then, _OF_BEST * best, _LEAST):
            return name, now
    return None


def _running_medians(values: Sequence[float]) -> list[float]:
    """Medians of as many evaluations in a row as a level has; of all if there are fewer."""
    starts = range(max(1, len(values) - _LATEST + 1))
    return [statistics.median(values[start : start + _LATEST]) for start in starts]


_FEWEST = 2
"""Evaluations after a fall: the first may still have been made with the policy before it."""


def is_at_risen_best(series: Series) -> bool:
    """Whether a held-out metric rose over the run and has kept nine tenths of its best level."""
    values = series.tail(WINDOW)
    if len(values) < 2 * _LATEST or not series.trend >= _MIN_TREND:
        return False
    best = max(_running_medians(values))
    return statistics.median(values[-_LATEST:]) >= _KEPT * best > 0


def heldout_rise_since(chart: Chart, since: int) -> tuple[str, float, float] | None:
    """The held-out metric that rises over the run and has kept rising since a step.

    Args:
        chart: the run.
        since: the step at which the training outcome fell.

    Returns:
        The metric and its levels before and since that step; None if there is none.
    """
    for name in HELDOUT:
        series = chart.series(name)
        steps, values = series.steps(WINDOW), series.tail(WINDOW)
        before = [value for step, value in zip(steps, values, strict=True) if step < since]
        later = [value for step, value in zip(steps, values, strict=True) if step >= since]
        if len(before) < _LATEST or not later or not series.trend >= _MIN_TREND:
            continue
        then, now = statistics.median(before[-_LATEST:]), statistics.median(later[-_LATEST:])
        if now > then and min(later) >= then:
            return name, then, now
    return None
