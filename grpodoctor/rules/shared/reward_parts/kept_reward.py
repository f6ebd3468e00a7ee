"""Whether a reward was kept while accuracy was lost: it then measures something else."""

from __future__ import annotations

import math

from grpodoctor.rules.shared.health.run_health import COLLAPSE_LOSS, RECENT, level_at
from grpodoctor.rules.shared.outcome.kept_policy import fell_from_outside
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import BASELINE, Series

ACCURACY, REWARD = "accuracy/train", "reward/mean"

MOST_LOST = 0.4
"""Loss of the reward per loss of accuracy, as shares of their levels, up to which the reward is
kept. Accuracy is a part of most rewards: if it made two fifths of this one or less, the reward pays
mostly for other things, and these are still there. A policy that breaks down loses them as well."""

_STANDARD_ERRORS = 3.0
"""Standard errors of the difference of the two levels, which both REW002 and REW005 require."""

_NOISE_READINGS = 50


def level_error(series: Series) -> float:
    """Standard error of the difference between a block's median and the latest level."""
    noise = series.noise(_NOISE_READINGS)
    return noise * math.sqrt(math.pi / 2 * (1 / BASELINE + 1 / RECENT))


def fall_from_best(accuracy: Series) -> float:
    """How far the latest accuracy is below its best block, by median and mean; 0 without one."""
    best = accuracy.highest
    if best is None:
        return 0.0
    return min(best.level - accuracy.level(RECENT), best.mean - accuracy.mean(RECENT))


def reward_is_kept(chart: Chart) -> bool:
    """Whether accuracy was lost, and the reward lost much less.

    A fall that no update can have caused is not learned: the judge or the prompts have changed.
    """
    accuracy, reward = chart.series(ACCURACY), chart.series(REWARD)
    best = accuracy.highest
    if best is None or best.level <= 0 or not len(reward):
        return False
    least = COLLAPSE_LOSS * best.level
    if not best.level - accuracy.level(RECENT) >= least:
        return False  # the usual case; means and noise take longer
    fall, then = fall_from_best(accuracy), level_at(reward, best.step)
    if then is None or not fall >= max(least, _STANDARD_ERRORS * level_error(accuracy)):
        return False
    kept = 1 - MOST_LOST * fall / best.level
    if not reward.level(RECENT) >= kept * then > 0:
        return False
    return not fell_from_outside(chart, accuracy)
