"""Groups that agree with themselves although their prompts are neither all easy nor all hard."""

from __future__ import annotations

import math
import statistics

from grpodoctor.rules.shared.groups.equal_responses import equal_pairs
from grpodoctor.rules.shared.health.reward_components import MEAN, STD, component_means
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    RECENT,
    has_critic,
    outcome_metric,
    typical_share,
    zero_variance_metric,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW

_ACCURACY, _REWARD = "accuracy/train", "reward/mean"
GROUP_STD, BATCH_STD = "groups/reward_std", "reward/std"

ALIKE_SHARE = 0.95
"""Share of groups with equal rewards at which next to none is mixed."""
BOTH_KINDS = 0.15
"""Share of all-correct and of all-incorrect groups at which the prompts are neither all easy nor
all hard: in between, independent responses would disagree."""
SOME_OF_BOTH = 0.03
"""The same where not a single group of the window was mixed: prompts that are never and always
solved have others in between."""
ALIKE_STD = 1 - ALIKE_SHARE
"""Mean spread within groups as a share of the spread of all responses, if as many groups agree: a
mixed group spreads about as much as the batch."""

_MIN_UNMIXED = 4 * RECENT
"""Readings without a mixed group: 300 groups and more, of which `SOME_OF_BOTH` are ten."""

_SAME_SPREAD = 0.05
"""Difference of the spread of rewards of 0 and 1 from that of their mean, for a batch of a hundred
responses and for means of several batches."""

_MOST_EQUAL_PAIRS = 0.01
"""Chance of two equal responses up to which a policy writes different responses: at 4.6 nats per
response and more. Nearly deterministic policies of healthy agent runs had 1.5."""


def has_alike_groups(chart: Chart, zero_variance: float) -> bool:
    """Whether next to all groups agree with themselves, some of them right and others wrong.

    Args:
        chart: the run so far.
        zero_variance: the share of groups with equal rewards.
    """
    if zero_variance < ALIKE_SHARE:
        return False
    right = all_correct_share(chart)
    least = SOME_OF_BOTH if _has_no_mixed_group(chart) else BOTH_KINDS
    return right is not None and least <= right <= zero_variance - least


def _has_no_mixed_group(chart: Chart) -> bool:
    """Whether each group of the window had equal rewards."""
    shares = chart.series("groups/zero_variance_rate").tail(WINDOW)
    return len(shares) >= _MIN_UNMIXED and min(shares) == 1


def all_correct_share(chart: Chart) -> float | None:
    """The share of all-correct groups, as logged or as next to no mixed group implies; or None.

    The mean of rewards of 0 and 1 is the share of all-correct groups, up to that of mixed ones.
    """
    rates = [chart.series(f"groups/all_{kind}_rate") for kind in ("correct", "incorrect")]
    if all(len(rate) >= 2 * RECENT for rate in rates):
        return typical_share(rates[0], RECENT)
    is_counted = len(chart.series("groups/zero_variance_rate")) >= 2 * RECENT
    return _success_rate(chart) if is_counted and not any(map(len, rates)) else None


def _success_rate(chart: Chart) -> float | None:
    """The share of correct responses: the accuracy, or a reward that spreads as 0 and 1 do."""
    accuracy, reward = chart.series(_ACCURACY), chart.series(_REWARD)
    if len(accuracy) >= 2 * RECENT:
        return accuracy.mean(RECENT)
    if len(reward) < 2 * RECENT or reward.window_min() < 0 or reward.window_max() > 1:
        return None
    # Batches of a few alike groups differ in mean, so each spread is compared with its own mean.
    expected = statistics.fmean(math.sqrt(mean * (1 - mean)) for mean in reward.tail(RECENT))
    is_binary = abs(_spread(chart) - expected) <= _SAME_SPREAD * expected
    return reward.mean(RECENT) if is_binary else None


def _spread(chart: Chart) -> float:
    """The spread of the reward among all responses, or of the component that it consists of."""
    whole = [name for name in component_means(chart) if chart.value(name) == chart.value(_REWARD)]
    spreads = [BATCH_STD, *(f"{name.removesuffix(MEAN)}{STD}" for name in whole)]
    logged = [chart.series(name) for name in spreads if chart.is_fresh(name)]
    return logged[0].mean(RECENT) if logged else math.nan


def has_alike_stds(chart: Chart) -> bool:
    """Whether rewards in [0, 1] differ among the responses of a batch, and not within its groups.

    Their mean is neither near 0 nor near 1, where few groups would be mixed anyway.
    """
    groups, batch = chart.series(GROUP_STD), chart.series(BATCH_STD)
    if not chart.is_fresh(GROUP_STD) or not chart.is_fresh(BATCH_STD):
        return False
    if groups.last > batch.last / 2 or min(len(groups), len(batch)) < 2 * RECENT:
        return False
    reward = chart.series("reward/mean")
    if not BOTH_KINDS <= reward.level(RECENT) <= 1 - BOTH_KINDS:
        return False
    if not reward.is_within(0, 1):
        return False
    return 0 <= groups.mean(RECENT) <= ALIKE_STD * batch.level(RECENT)


def has_copied_responses(chart: Chart) -> bool:
    """Whether groups agree with themselves although the policy's responses differ.

    A policy that has become deterministic has alike groups as well, at next to no entropy.
    """
    name = zero_variance_metric(chart)
    if name is None or has_critic(chart) or outcome_metric(chart) is None:
        return False
    has_entropy = any(map(chart.is_fresh, ENTROPY_METRICS))
    if not has_entropy or equal_pairs(chart) > _MOST_EQUAL_PAIRS:
        return False
    return has_alike_stds(chart) or has_alike_groups(
        chart, typical_share(chart.series(name), RECENT)
    )
