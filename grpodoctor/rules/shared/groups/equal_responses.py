"""Whether a policy is so certain that its responses to one prompt repeat each other."""

from __future__ import annotations

import math

from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    HARDLY_ANY,
    RECENT,
    current_metric,
    has_critic,
    has_stalled_low,
    is_low,
    typical_share,
    zero_variance_metric,
)
from grpodoctor.runs.chart import Chart

_LATEST = 5
_EQUAL_PAIRS = 1 / 3
"""Share of equal pairs of responses to one prompt from which comparing them teaches little: a group
has three different responses or fewer in effect, as the inverse Simpson index counts them."""


def equal_pairs(chart: Chart) -> float:
    """A lower bound for the chance that two responses to one prompt are equal; 0 if unknown.

    A response of L tokens at H nats per token has an entropy of L times H, and two of them are
    equal with a chance of at least exp(-L H) (Jensen's inequality).
    """
    entropy = chart.series(current_metric(chart, ENTROPY_METRICS))
    lengths = chart.series("length/mean")
    if not len(entropy) or not len(lengths):
        return 0.0
    return math.exp(-entropy.level(_LATEST) * lengths.level(_LATEST))


def explores_no_more(chart: Chart) -> bool:
    """Whether most responses repeat each other while an outcome far below 1 has stopped rising.

    A policy without other responses finds no better ones. Once next to no group varies, the outcome
    has stopped rising as well, which in a short run no course of it shows.
    """
    if equal_pairs(chart) < _EQUAL_PAIRS:
        return False
    return has_stalled_low(chart) or (is_low(chart) and _hardly_varies(chart))


def _hardly_varies(chart: Chart) -> bool:
    name = zero_variance_metric(chart)
    if name is None or has_critic(chart):
        return False
    return typical_share(chart.series(name), RECENT) >= HARDLY_ANY
