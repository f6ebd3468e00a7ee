"""Batches with nearly no reward between batches with the usual reward, apart from any trend."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from grpodoctor.runs.estimators import median, step_noise

BESIDE_TREND = 0.25
"""Share of the level around it below which a batch is an outage, if its chance is small enough."""
FULL_SHARE = 0.5
"""Share of the usual reward that every other batch then earns at least."""

SAME_REWARD = 1e-3
"""Share of the usual reward by which two rewards differ at least; less is rounding."""

_AROUND = 5
"""Readings before and after one that make its usual level: a run's level hardly moves in ten steps,
and outages are the fewer of them."""
_LEAST_CHANCE = 1e-6
"""Chance of as many outages in a healthy run; see REW019 for what the chance of one is."""


class Outages(NamedTuple):
    """Batches that earn next to nothing."""

    indices: tuple[int, ...]
    """Their places among the readings."""
    periods: int
    """Periods without reward, each between batches that earn."""


def outages_beside_trend(values: Sequence[float]) -> Outages | None:
    """Outages of a reward that rises or falls, by the level around each reading; None without one.

    Args:
        values: readings of 0 or more, oldest first.
    """
    if min(values) < 0 or len(values) <= 2 * _AROUND or not math.isfinite(sum(values)):
        return None
    if not _may_have_outages(values):
        return None  # the usual case; the levels around all readings take longer
    levels = [_level_around(values, index) for index in range(len(values))]
    if not min(levels) > 0:
        return None
    is_low = [value <= BESIDE_TREND * level for value, level in zip(values, levels, strict=True)]
    usual = [index for index, low in enumerate(is_low) if not low]
    shares = [values[index] / levels[index] for index in usual]
    periods = [low for low, _ in itertools.groupby(is_low)]
    outages = Outages(tuple(itertools.compress(range(len(values)), is_low)), sum(periods[1:-1]))
    if not outages.periods or min(shares) < FULL_SHARE:
        return None
    least = min(itertools.compress(levels, is_low))
    chance = _chance_of_an_outage(shares, [values[index] for index in usual], least)
    if math.comb(len(values), outages.periods) * chance**outages.periods > _LEAST_CHANCE:
        return None
    return outages


def _may_have_outages(values: Sequence[float]) -> bool:
    """Whether a reading is as low as an outage; no level around one is above the highest."""
    bound = BESIDE_TREND * max(values)
    return any(
        value <= bound and value <= BESIDE_TREND * _level_around(values, index)
        for index, value in enumerate(values)
    )


def _level_around(values: Sequence[float], index: int) -> float:
    """The median of the readings around one, without itself."""
    begin = min(max(0, index - _AROUND), len(values) - 2 * _AROUND - 1)
    around = [*values[begin:index], *values[index + 1 : begin + 2 * _AROUND + 1]]
    return median(around)


def _chance_of_an_outage(shares: Sequence[float], values: Sequence[float], level: float) -> float:
    """The chance that an ordinary batch earns as little as an outage.

    Rewards of 0 and 1 whose mean p scatters by a share s of it are those of (1 - p) / (p s^2)
    responses, which succeed independently. Of the chances of so few successes and of a normal
    reading so far below its level, the higher one counts. Where the level is low, a batch without
    any success is no outage: the share s grows as the root of the level falls.

    Args:
        shares: readings without an outage, as shares of the level around them.
        values: the same readings as they are.
        level: the lowest level around an outage.
    """
    mean = statistics.fmean(values)
    noise = max(step_noise(shares), counting_noise(values, mean) / mean)
    if not noise > 0:
        return 0.0
    rate = min(mean, level)
    noise_there = noise * math.sqrt(mean / rate)
    normal = math.erfc((1 - BESIDE_TREND) / noise_there / math.sqrt(2)) / 2
    if max(values) > 1 or not mean < 1:
        return normal
    return max(normal, _few_successes(int((1 - mean) / (mean * noise * noise)), rate))


def counting_noise(alive: Sequence[float], usual: float) -> float:
    """Noise of a reward that counts successes, whatever the readings without any show.

    The smallest difference between two rewards is that of one success. The number of rare successes
    has a variance as large as itself; that of rewards up to 1 is binomial. The readings above 0
    alone understate it: with one success in two batches they are all equal.

    Args:
        alive: readings above 0.
        usual: their level.
    """
    levels = [0.0, *sorted(set(alive))]
    gaps = [after - before for before, after in itertools.pairwise(levels)]
    unit = min((gap for gap in gaps if gap > SAME_REWARD * usual), default=usual)
    # The median of few responses is 1 while a part of them fails; their mean shows that part.
    failing = 1 - statistics.fmean(alive) if max(alive) <= 1 else 1.0
    return math.sqrt(usual * unit * failing)


def _few_successes(responses: int, rate: float) -> float:
    """The chance of a share of `BESIDE_TREND` of the usual successes, or less."""
    few = int(BESIDE_TREND * rate * responses)
    return sum(
        math.exp(_log_choices(responses, count)) * rate**count * (1 - rate) ** (responses - count)
        for count in range(few + 1)
    )


def _log_choices(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
