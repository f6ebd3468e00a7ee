"""How the run is doing: the question that most rules ask before they call anything a disease."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Literal

from grpodoctor.runs.chart import WINDOW, Chart, Series
from grpodoctor.runs.estimators import level_shift, step_noise
from grpodoctor.vocabulary.values import NotApplicable

RECENT = 10
"""Readings that make the present level; as many as make the run's own start."""

SOLVED_ACCURACY = 0.95
"""From here on a sharper policy and groups without variance are what success looks like."""

SOLVED_GROUPS = 0.8
"""Share of groups answered right throughout that says the same where accuracy is not recorded."""

CEILING = 0.9
"""Level of an outcome in [0, 1] from which on standing still is no stall."""

_SMOOTHED = 5
"""Readings whose median tells when something began."""

_NOISE_STEPS = 30
"""Readings from which the noise of one reading is taken."""


NEEDS_NO_VARIANCE = NotApplicable(
    "with a critic's advantages a group whose rewards are all equal teaches like any other"
)


def fresh_of(chart: Chart, names: Sequence[str]) -> str:
    """The first of alternative metrics that is read at this step; the best where none is."""
    return next((name for name in names if chart.is_fresh(name)), names[0])


def has_critic(chart: Chart) -> bool:
    """Whether the advantages stand on a critic's values, not on a comparison within groups."""
    return chart.knobs.get("advantage") == "gae"


def outcome_of(chart: Chart) -> str | None:
    """The metric that says how well the run does; None if none is recorded."""
    for name in ("accuracy/train", "reward/mean"):
        if len(chart.series(name)):
            return name
    return None


def has_improved(chart: Chart) -> bool | None:
    """Whether the outcome stands above the run's own start, beyond its spread; None if unknown.

    The median of ten readings scatters by less than half the spread of one.
    """
    name = outcome_of(chart)
    start = chart.baseline(name) if name else None
    if name is None or start is None:
        return None
    return chart.series(name).level(RECENT) > start.level + start.spread


def has_stalled(chart: Chart, *, readings: int = 30) -> bool:
    """Whether the outcome, short of its ceiling, is no higher than `readings` readings ago."""
    series = chart.series(outcome_of(chart) or "")
    tail = series.tail(2 * readings)
    if len(tail) < 2 * readings or is_near_ceiling(series):
        return False
    return level_shift(tail[:readings], tail[readings:]) < 2


def is_near_ceiling(series: Series) -> bool:
    """Whether an outcome in [0, 1] stands so high that little is left to rise to."""
    return series.level(_NOISE_STEPS) >= CEILING and all(value <= 1 for _, value in series)


def is_solved(chart: Chart) -> bool:
    """Whether the training prompts are solved, so that nothing is left to learn from them."""
    accuracy = chart.series("accuracy/train")
    if len(accuracy):
        return accuracy.level(RECENT) >= SOLVED_ACCURACY
    right = chart.series("groups/all_correct_rate")
    if len(right):
        return right.level(RECENT) >= SOLVED_GROUPS
    return _at_one(chart.series("reward/mean"))


def _at_one(reward: Series) -> bool:
    """Whether a reward whose scale is not declared looks like one in [0, 1] that stays at 1.

    One that was 1 in every single reading since the start is not solved, as far as can be told:
    more likely it is given to any response.
    """
    if not len(reward) or reward.level(RECENT) < 0.98 or never_moved(reward):
        return False
    return all(0 <= value <= 1 + 1e-6 for _, value in reward)


def never_moved(series: Series) -> bool:
    """Whether all readings in the window, and the start as far as it is kept, are one value."""
    values = {value for _, value in series}
    if len(values) != 1 or (series.baseline and series.baseline.spread):
        return False
    kept = (series.opening, series.highest, series.lowest)
    return all(each is None or each.level == series.last for each in kept)


def share_lost(series: Series) -> float:
    """Which share of its best level a metric has lost; 0 within its noise.

    A fall is beyond noise by four standard deviations of a reading within the latest ten, or by two
    and a half within the latest twenty: some five standard errors either way, of which choosing the
    best of many levels takes up to two. Where the metric also takes negative values, the share is
    of the range between its best and its worst level instead.
    """
    scale = _scale(series)
    if series.highest is None or scale <= 0:
        return 0.0
    best = series.highest.level
    lost = best - series.level(RECENT)
    # Less than a tenth is not worth the estimate of the noise, which is the dear part.
    if not lost >= scale / 10:
        return 0.0
    noise, lasting = noise_of(series), best - series.level(2 * RECENT)
    if lost > 4 * noise:
        return lost / scale
    return min(lost, lasting) / scale if lasting > 2.5 * noise else 0.0


def _scale(series: Series) -> float:
    """What a loss is a share of; 0 before there is a best level."""
    if series.highest is None or series.lowest is None:
        return 0.0
    best, worst = series.highest.level, series.lowest.level
    return best if worst >= 0 else best - worst


def luck_of_extreme(series: Series) -> float:
    """How far chance takes the best or the worst of many levels, as a share like `share_lost`.

    Of k normal ones the best is their mean plus as many standard errors as the quantile at
    (k - 3/8) / (k + 1/4) (Blom 1958).
    """
    scale, blocks = _scale(series), len(series) // RECENT
    if scale <= 0 or blocks < 2:
        return 0.0
    error = noise_of(series) * math.sqrt(math.pi / 2 / RECENT)
    return error / scale * statistics.NormalDist().inv_cdf((blocks - 0.375) / (blocks + 0.25))


def noise_of(series: Series) -> float:
    """The noise of one reading: lately, or over the whole window where that is more.

    With one prompt to a batch the reward jumps between few values and happens to stand still for a
    while, whose noise is not that of the readings which made the best level.
    """
    return max(step_noise(series.tail(_NOISE_STEPS)), step_noise(series.tail(WINDOW)))


def share_of(series: Series, count: int) -> float:
    """A typical share among the latest readings of one.

    Their median, or their mean where a batch is of so few groups that most readings are 0 or 1: a
    median could be nothing else.
    """
    coarse = [value for value in series.tail(max(count, _NOISE_STEPS)) if math.isfinite(value)]
    at_ends = sum(value in (0.0, 1.0) for value in coarse)
    if 2 * at_ends <= len(coarse) or min(coarse) == max(coarse):
        return series.level(count)
    return statistics.fmean(coarse)


def level_at(series: Series, step: int) -> float | None:
    """The level of a metric at a step; its best if the window no longer reaches back to it."""
    before = [value for each, value in series if each <= step][-RECENT:]
    if before:
        return statistics.median(before)
    return series.highest.level if series.highest else None


def since(series: Series, holds: Callable[[float], bool]) -> int:
    """The step since which something holds of a metric, in the window: of the median of five.

    A level takes ten readings or more to be judged, and what is judged then began before.
    """
    steps, values = zip(*series, strict=True)
    for last in range(len(values) - 1, _SMOOTHED - 2, -1):
        if not holds(statistics.median(values[last - _SMOOTHED + 1 : last + 1])):
            # With the next reading the median turned: three of its five lie on this side of it.
            return int(steps[last - 1])
    return int(steps[0])


def outcome_lost(chart: Chart) -> float:
    """`share_lost` of the outcome; 0 if none is recorded."""
    return share_lost(chart.series(outcome_of(chart) or ""))


def why_no_variance(chart: Chart) -> Literal["easy", "hard"] | None:
    """Why groups have no variance, in a log that does not split them; None if it cannot be told.

    With a reward of right and wrong, at most a share `accuracy` of the groups can be right
    throughout, and at most `1 - accuracy` wrong throughout.
    """
    flat = share_of(chart.series("groups/zero_variance_rate"), RECENT)
    if chart.value("groups/cancelled_rate"):
        return None
    accuracy = chart.series("accuracy/train")
    if len(accuracy):
        right = accuracy.level(RECENT)
        if flat > max(right, 1 - right) + 0.1:
            return None
        return "easy" if right >= 0.5 else "hard"
    if is_solved(chart):
        return "easy"
    reward = chart.series("reward/mean")
    return "hard" if len(reward) and not any(reward.tail(RECENT)) else None
