"""What exact means of rewards of 0 and 1 tell about a batch: how many responses they cover."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from grpodoctor.rules.shared.health.run_health import ZERO_VARIANCE_METRICS
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import implied_count
from grpodoctor.runs.series import WINDOW
from grpodoctor.vocabulary.knobs import Setting

SUCCESSES = ("reward/mean", "accuracy/train")
"""Metrics that are exact means of 0 and 1 over the responses of a batch; best first."""
_ZERO_VARIANCE = ZERO_VARIANCE_METRICS[0]
EQUAL_SHARES = (_ZERO_VARIANCE, "groups/effective_rate")
"""Metrics that count the groups without variance: the second one counts the others."""
_EXACT = 2e-7
"""Distance of a logged mean from its fraction: float32 has seven digits."""
_FEWEST = 5
"""Readings that imply a batch."""


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Responses of a batch and of a group."""

    responses: int
    group: int

    @property
    def groups(self) -> int:
        """Groups of a batch."""
        return self.responses // self.group


def batch_shape(chart: Chart) -> BatchShape | None:
    """From the config, or as exact shares of the log imply it; None if unknown."""
    knobs = chart.knobs
    group, prompts = _count(knobs.get("group_size")), _count(knobs.get("prompts_per_batch"))
    if group and prompts:
        return BatchShape(group * prompts, group)
    first = chart.series(success_metric(chart)).head(WINDOW)
    responses = _responses(tuple(first)) if len(first) >= _FEWEST else None
    if responses is None:
        return None
    shares = equal_shares(chart)
    if len(shares) < _FEWEST:
        return None
    groups = math.lcm(*(denominator(share, responses) or 0 for share in set(shares)))
    # A share that was rounded has another denominator than those of the rewards.
    if groups < 2 or groups == responses or responses % groups:
        return None
    return BatchShape(responses, responses // groups)


def success_metric(chart: Chart) -> str:
    """The reward, or the accuracy of a log that has no reward of all responses."""
    for name in SUCCESSES:
        if len(chart.series(name)):
            return name
    return SUCCESSES[0]


def shares_metric(chart: Chart) -> str:
    """The metric that counts the groups without variance, or those with it."""
    return next((name for name in EQUAL_SHARES if len(chart.series(name))), EQUAL_SHARES[0])


def equal_shares(chart: Chart) -> list[float]:
    """The shares of groups without variance in the window, oldest first."""
    name = shares_metric(chart)
    shares = chart.series(name).tail(WINDOW)
    return shares if name == _ZERO_VARIANCE else [1 - share for share in shares]


@lru_cache(maxsize=64)
def _responses(first: tuple[float, ...]) -> int | None:
    """Responses of a batch, as the first readings imply it: the same at every step of a run."""
    return implied_count(first)


def _count(setting: Setting | None) -> int:
    """A setting that is a number above one; 0 otherwise."""
    return setting if isinstance(setting, int) and setting > 1 else 0


@lru_cache(maxsize=4096)
def denominator(mean: float, most: int) -> int | None:
    """The smallest denominator up to `most` of a mean in [0, 1]; None without one.

    Means of real numbers have none: fractions with denominators up to 64 cover .0005 of [0, 1].
    Shares recur, so the cache saves most of the work.
    """
    if not 0 <= mean <= 1:
        return None
    fraction = Fraction(mean).limit_denominator(most)
    return fraction.denominator if abs(float(fraction) - mean) <= _EXACT else None


def covered(mean: float, shape: BatchShape) -> int | None:
    """The responses that a mean of rewards of 0 and 1 covers, if they are not whole groups.

    None if whole groups, as many as the batch has or fewer, have such a mean, or if the mean is no
    share of so few responses.
    """
    size = denominator(mean, shape.responses)
    if size is None or math.lcm(size, shape.group) <= shape.responses:
        return None
    return shape.responses // size * size
