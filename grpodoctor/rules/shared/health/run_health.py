"""Whether a run improves, stalls or is solved: most rules ask this before they raise a finding.

The *outcome* of a run is its training accuracy, or its mean reward where accuracy is not logged.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from grpodoctor.rules.shared.health.component_roles import only_form_is_earned
from grpodoctor.rules.shared.health.reward_components import component_means
from grpodoctor.rules.shared.health.success_measures import accuracy_is_contradicted
from grpodoctor.rules.shared.health.whole_run import never_moved, rises_over_run
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import level_shift
from grpodoctor.runs.inferred_groups import INFERRED_ZERO_VARIANCE
from grpodoctor.runs.series import WINDOW, Series, once_per_reading
from grpodoctor.vocabulary.values import NotApplicable

RECENT = 10
"""Readings that make the current level; the run's starting value uses as many."""

SOLVED_ACCURACY = 0.95
"""Accuracy above which low entropy and zero-variance groups are signs of success."""

SOLVED_GROUPS = 0.8
"""Share of all-correct groups that means the same where accuracy is not logged."""

CEILING = 0.9
"""Level of an outcome in [0, 1] above which a flat curve is not a stall."""

ZERO_VARIANCE_METRICS = ("groups/zero_variance_rate", INFERRED_ZERO_VARIANCE)
ENTROPY_METRICS = ("entropy/mean", "entropy/sampled")
"""The entropy of the distribution, or its estimate from the sampled tokens."""

NO_SIGNAL = 0.98
"""Share of zero-variance groups at which no signal is left except by accident."""

HARDLY_ANY, _LEARNED = 0.95, 0.7
"""Share of zero-variance groups that leaves hardly any signal, and outcome from which a policy may
have learned what it can: healthy agent runs whose policy was nearly deterministic ended at .75 to
.95."""

FLAT_BATCHES = 0.8
"""Share of batches without any varying group that means the same where groups are not counted.
Healthy runs with one prompt per batch reach .6."""

COLLAPSE_LOSS = 0.35
"""Share of the best outcome whose loss REW002 reports."""

FAILED_OUTCOME = 0.5
"""Accuracy below which most groups without variance are all-incorrect."""

_SAME_REWARD = 0.01
"""Share by which constant rewards may differ: a batch of a hundred responses with one that earns
twice as much, or nothing."""

_NEAR = 0.1
"""Share of the best level that is no loss worth a word."""

_SMOOTHED = 5
"""Readings in the running median that dates the onset of a change."""

_NEVER_ASKED = (None, "")
"""Step and answer of `outcome_metric` before it was asked."""

_NOISE_STEPS = 30
"""Readings from which the noise of one reading is estimated."""


CRITIC_IS_BASELINE = NotApplicable(
    "the advantages come from a critic, so a group with equal rewards still contributes gradient"
)


def current_metric(chart: Chart, names: Sequence[str]) -> str:
    """The first of several alternative metrics with a reading at this step, else the first."""
    fresh = chart.fresh
    for name in names:
        if name in fresh:
            return name
    return names[0]


def fresh_metric(chart: Chart, names: Iterable[str]) -> str | None:
    """The first of several alternative metrics with a reading at this step; None without one."""
    fresh = chart.fresh
    for name in names:
        if name in fresh:
            return name
    return None


def has_critic(chart: Chart) -> bool:
    """Whether the advantages come from a critic instead of a comparison within groups."""
    return chart.knobs.get("advantage") == "gae"


def outcome_metric(chart: Chart) -> str | None:
    """`accuracy/train`, or `reward/mean` where accuracy is not logged; None without both.

    Some trainers log no accuracy in steps without a correct response. An accuracy that is missing
    for long, or that the best rewards contradict, therefore gives way to the reward.
    """
    reward = chart.series("reward/mean")
    # Most rules ask at every step. A run that goes back clears the memo.
    known: tuple[int | None, str] = reward.memo.get(outcome_metric, _NEVER_ASKED)
    step, name = known
    if step != chart.step:
        accuracy = chart.series("accuracy/train")
        if not len(reward):
            return "accuracy/train" if len(accuracy) else None
        if not len(accuracy):
            return "reward/mean"
        is_reward = _has_ceased(chart, accuracy, reward.last_step)
        is_reward = is_reward or accuracy_is_contradicted(chart, accuracy)
        name = "reward/mean" if is_reward else "accuracy/train"
        reward.memo[outcome_metric] = chart.step, name
    return name


def _has_ceased(chart: Chart, accuracy: Series, step: int) -> bool:
    """Whether ten usual intervals of the accuracy have passed without a reading of it."""
    if chart.is_fresh("accuracy/train"):
        return False  # the usual case
    steps = accuracy.steps(RECENT)
    if len(steps) < 2:
        return False
    interval = statistics.median(after - before for before, after in pairwise(steps))
    return step - steps[-1] > RECENT * interval


def outcome_noun(chart: Chart) -> str:
    """What to call the outcome in a summary."""
    return "accuracy" if outcome_metric(chart) == "accuracy/train" else "reward"


def is_stuck(chart: Chart) -> bool:
    """Whether the latest rewards are all about the same, at or below zero: nothing is earned."""
    values = chart.series(outcome_metric(chart) or "").tail(RECENT)
    if len(values) < RECENT or not max(values) <= 0:
        return False
    return max(values) - min(values) <= _SAME_REWARD * -min(values)


def has_improved(chart: Chart) -> bool | None:
    """Whether the outcome is above its starting value, or rises over the run; None if unknown.

    The starting value is exceeded by more than the spread: the median of ten readings scatters by
    less than half the spread of one reading.
    """
    name = outcome_metric(chart)
    series = chart.series(name or "")
    start = series.start
    if start is None:
        return None
    if series.level(RECENT) > start.level + start.spread:
        return True
    return rises_over_run(series) and not is_stuck(chart)


def has_stalled(chart: Chart, *, readings: int = 30) -> bool:
    """Whether the outcome is below its ceiling and no higher than `readings` readings ago."""
    series = chart.series(outcome_metric(chart) or "")
    values = series.tail(2 * readings)
    if len(values) < 2 * readings or is_near_ceiling(series):
        return False
    return level_shift(values[:readings], values[readings:]) < 2


@once_per_reading
def is_near_ceiling(series: Series) -> bool:
    """Whether an outcome in [0, 1] is so high that little is left to gain."""
    if not len(series) or not CEILING <= series.window_max() <= 1:
        return False  # the usual case; the level takes longer
    return series.level(_NOISE_STEPS) >= CEILING


def is_solved(chart: Chart) -> bool:
    """Whether the training prompts are solved."""
    accuracy = chart.series("accuracy/train")
    if len(accuracy):
        is_high = accuracy.level(RECENT) >= SOLVED_ACCURACY
        return is_high and mean_is_high(accuracy)
    all_correct = chart.series("groups/all_correct_rate")
    if len(all_correct):
        return all_correct.level(RECENT) >= SOLVED_GROUPS
    reward = chart.series("reward/mean")
    is_high = _reached_one(reward) or is_at_highest_reward(chart)
    return is_high and not only_form_is_earned(chart)


def mean_is_high(series: Series, top: float = 1.0, count: int = 2 * RECENT) -> bool:
    """Whether the mean of the latest readings is near the highest value as well.

    The median of few responses' rewards is the highest one while a sixth of them fail.
    """
    return series.mean(count) >= CEILING * top


def is_at_highest_reward(chart: Chart) -> bool:
    """Whether a reward of unknown scale has risen to a value that it reaches and never exceeds.

    Mean rewards of many responses repeat a value exactly only if all responses earn the same; if it
    is the highest value of the run, they earn the most that is possible. Components must not be
    stuck at or below zero, since then only a part of the reward is at its highest value.
    """
    reward = chart.series("reward/mean")
    if reward.baseline is None or reward.highest is None or never_moved(reward):
        return False
    recent = reward.tail(RECENT)
    top = max(*reward.tail(WINDOW), reward.highest.level)
    if sum(value == top for value in recent) < RECENT / 2 or not top > 0:
        return False
    start = reward.baseline
    has_risen = top - start.level > max(start.spread, 0.1 * abs(top))
    # Ten readings: a run that is solved quickly has no twenty, and its groups are all equal by now.
    if not has_risen or not mean_is_high(reward, top, RECENT):
        return False
    return all(chart.series(name).last > 0 for name in component_means(chart))


def _reached_one(reward: Series) -> bool:
    """Whether a reward of unknown scale looks like one in [0, 1] that rose to 1.

    A reward of exactly 1 in every reading since the start does not count: more likely every
    response receives it.
    """
    if not len(reward) or reward.level(RECENT) < 0.98 or never_moved(reward):
        return False
    if not mean_is_high(reward):
        return False
    return reward.is_within(0, 1 + 1e-6)


@once_per_reading
def share_lost(series: Series) -> float:
    """Share of its best level that a metric has lost; 0 if the loss is within noise.

    A loss exceeds the noise if it is above four standard deviations of a reading within the latest
    ten readings, or above two and a half within the latest twenty. Both are about five standard
    errors; choosing the best of many levels accounts for up to two of them. In a run of more than
    a thousand readings chance goes further: the bounds rise, and the second one must also
    hold within the latest forty readings. For a metric that also takes negative values, the share
    is of the range between its best and worst level.
    """
    scale = _scale(series)
    if series.highest is None or scale <= 0:
        return 0.0
    best = series.highest.level
    lost = best - series.level(RECENT)
    # A loss below a tenth is never reported; estimating the noise is the expensive part.
    if not lost >= _NEAR * scale:
        return 0.0
    lost_longer = best - series.level(2 * RECENT)
    if not max(lost, lost_longer) > 2.5 * series.noise(_NOISE_STEPS):
        return 0.0  # the noise of the whole window, which takes longest, can only be larger
    if not _means_differ(series):
        return 0.0
    noise, further = reading_noise(series), 0.0
    if series.readings > _LONG_RUN:
        lost_longer = min(lost_longer, best - series.level(4 * RECENT))
        further = _ERROR * _further_choice(series)
    if lost > (4 + 2 * further) * noise:
        return lost / scale
    return min(lost, lost_longer) / scale if lost_longer > (2.5 + further) * noise else 0.0


_ERROR = math.sqrt(math.pi / 2 / RECENT)
"""Standard error of a median of ten readings, in noises of a reading."""
_LONG_RUN = 1000
"""Readings up to which the bounds of `share_lost` are calibrated. Of 20,000 uniform readings, ten
or twenty in a row are far below the best ten by chance, but not forty."""


def _further_choice(series: Series) -> float:
    """Standard errors by which the best of a longer run's levels is further off by chance.

    The latest level is tested at each reading, so that it is as extreme as the best one.
    """
    return _extreme(series.readings // RECENT) - _extreme(_LONG_RUN // RECENT)


def _extreme(count: int) -> float:
    """Expected largest of `count` standard normal numbers (Blom 1958)."""
    return statistics.NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


_USUAL_SHARE = 0.3
"""Share of the readings at their most common value, from which a median jumps between values."""
_MEAN_ERRORS = 2.0
"""Standard deviations of a reading by which two means of ten and of twenty readings then differ:
five standard errors; the choice of the best of many blocks uses two."""


def _means_differ(series: Series) -> bool:
    """Whether the best and the latest mean differ beyond chance, where most readings are alike.

    A log with one episode per row has a reward of a failure and one of a success. Of ten such
    readings, the median is either of them, whatever the success rate.
    """
    values = series.tail(WINDOW)
    _, count = Counter(values).most_common(1)[0]
    if series.highest is None or count < _USUAL_SHARE * len(values):
        return True
    jumps = [after - before for before, after in pairwise(values)]
    deviation = math.sqrt(statistics.fmean(jump * jump for jump in jumps) / 2)
    lost = series.highest.mean - series.mean(2 * RECENT)
    return not lost <= _MEAN_ERRORS * deviation


@once_per_reading
def is_near_best(series: Series) -> bool:
    """Whether the current level of a metric is within a tenth of its best level, or above it."""
    if series.highest is None or series.opening is None:
        return False
    best = max(series.highest.level, series.opening.level)
    first = series.first_value
    if first is not None and first > best:
        best = first
    return series.level(RECENT) >= best - _NEAR * _scale(series) > 0


def _scale(series: Series) -> float:
    """The quantity that `share_lost` divides by; 0 before there is a best level."""
    if series.highest is None or series.lowest is None:
        return 0.0
    best, worst = series.highest.level, series.lowest.level
    return best if worst >= 0 else best - worst


def selection_bias(series: Series) -> float:
    """How far chance alone moves the best of many levels, as a share like `share_lost`.

    The best of k normal levels is expected at their mean plus as many standard errors as the
    quantile at (k - 3/8) / (k + 1/4) (Blom 1958).
    """
    scale, blocks = _scale(series), len(series) // RECENT
    if scale <= 0 or blocks < 2:
        return 0.0
    error = reading_noise(series) * math.sqrt(math.pi / 2 / RECENT)
    return error / scale * _extreme(blocks)


@once_per_reading
def reading_noise(series: Series) -> float:
    """Noise of one reading: of the recent readings or of the whole window, whichever is larger.

    With one prompt per batch the reward jumps between few values and can stay at one of them for a
    while. The noise during that time is not the noise behind the best level.
    """
    return max(series.noise(_NOISE_STEPS), series.noise(WINDOW))


@once_per_reading
def typical_share(series: Series, count: int) -> float:
    """A typical value of a share over the latest `count` readings.

    It is the median, or the mean where most readings are 0 or 1 because a batch has few groups: a
    median could only be 0 or 1 there.
    """
    values = _typical_values(series, count)
    return series.level(count) if values is None else statistics.fmean(values)


def typical_readings(series: Series, count: int) -> int:
    """The number of readings that `typical_share` takes."""
    return count if _typical_values(series, count) is None else max(count, _NOISE_STEPS)


def _typical_values(series: Series, count: int) -> list[float] | None:
    """The readings whose mean is the typical share; None if it is the median of the latest."""
    values = series.tail(max(count, _NOISE_STEPS))
    if not math.isfinite(sum(values)):
        values = list(filter(math.isfinite, values))
    at_ends = values.count(0.0) + values.count(1.0)
    if 2 * at_ends <= len(values) or min(values) == max(values):
        return None
    return values


def level_at(series: Series, step: int) -> float | None:
    """Level of a metric at a step; its best level if the window does not reach back to it."""
    count = bisect_right(series.steps(WINDOW), step)
    if count:
        return statistics.median(series.tail(WINDOW)[max(0, count - RECENT) : count])
    return series.highest.level if series.highest else None


def first_step_where(
    series: Series, holds: Callable[[float], bool], *, after: int | None = None
) -> int:
    """First step since which a condition holds without interruption for the median of five.

    Rules judge levels of ten or more readings, so what they see began before they see it. If it
    held from the first five on, it began at the first reading that meets the condition.

    Args:
        series: a metric.
        holds: the condition.
        after: a step at which it did not hold; with few readings, the median of five is still that
            of the time before.
    """
    steps, values = zip(*series, strict=True)
    began = _began(steps, values, holds)
    if after is None or began > after:
        return began
    later = [(step, value) for step, value in zip(steps, values, strict=True) if step > after]
    if not later:
        return int(steps[-1])
    return int(next((step for step, value in later if holds(value)), later[0][0]))


def _began(steps: Sequence[int], values: Sequence[float], holds: Callable[[float], bool]) -> int:
    for last in range(len(values) - 1, _SMOOTHED - 2, -1):
        if not holds(statistics.median(values[last - _SMOOTHED + 1 : last + 1])):
            # The next reading turned the median, so three of its five readings meet the condition.
            return int(steps[last - 1])
    began = (step for step, value in zip(steps, values, strict=True) if holds(value))
    return int(next(began, steps[0]))


def fall_text(chart: Chart) -> str:
    """The fall of the outcome from its best to its current level, for a summary."""
    series = chart.series(outcome_metric(chart) or "")
    levels = [level.level for level in (series.highest, series.opening) if level is not None]
    before = f" from {max(levels):.3g}" if levels else ""
    return f"{outcome_noun(chart)} fell{before} to {series.level(RECENT):.3g}"


def outcome_lost(chart: Chart) -> float:
    """`share_lost` of the outcome; 0 if no outcome is logged."""
    return share_lost(chart.series(outcome_metric(chart) or ""))


def zero_variance_metric(chart: Chart) -> str | None:
    """The share of zero-variance groups at this step: as logged, else as inferred; None without.

    The inferred share is a lower bound; see `runs/inferred_groups.py`.
    """
    return fresh_metric(chart, ZERO_VARIANCE_METRICS)


def lacks_signal(chart: Chart) -> bool:
    """Whether next to no group has varied in the latest readings, as far as the log shows."""
    name = zero_variance_metric(chart)
    if name is None or has_critic(chart):
        return False
    shares = chart.series(name).tail(2 * RECENT)
    enough = NO_SIGNAL if name == ZERO_VARIANCE_METRICS[0] else FLAT_BATCHES
    return len(shares) == 2 * RECENT and sum(shares) >= enough * len(shares)


def has_lost_outcome(chart: Chart) -> bool:
    """Whether REW002 or REW005 reports a loss, so that other findings are symptoms of it."""
    series = chart.series(outcome_metric(chart) or "")
    opening = series.opening
    if opening is None:
        return False
    fell = opening.level > 0 and series.level(2 * RECENT) <= (1 - COLLAPSE_LOSS) * opening.level
    return fell or share_lost(series) >= COLLAPSE_LOSS


def has_stalled_without_signal(chart: Chart) -> bool:
    """Whether an outcome in [0, 1] has stalled far below 1 while hardly any group varies."""
    name = zero_variance_metric(chart)
    if name is None or has_critic(chart) or not has_stalled_low(chart):
        return False
    return typical_share(chart.series(name), 2 * RECENT) >= HARDLY_ANY


def has_stalled_low(chart: Chart) -> bool:
    """Whether an outcome in [0, 1] has stalled far below 1."""
    return has_stalled(chart) and is_low(chart)


def is_low(chart: Chart) -> bool:
    """Whether an outcome in [0, 1] is far below 1."""
    series = chart.series(outcome_metric(chart) or "")
    if not series.level(_NOISE_STEPS) < _LEARNED:
        return False
    return series.window_min() >= 0 and series.window_max() <= 1
