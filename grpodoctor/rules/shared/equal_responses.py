"""Whether a policy is so certain that its responses to one prompt repeat each other."""

from __future__ import annotations

import math

from grpodoctor.rules.shared.run_health import ENTROPY_METRICS, current_metric, has_stalled_low
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

    A policy without other responses finds no better ones.
    """
    return equal_pairs(chart) >= _EQUAL_PAIRS and has_stalled_low(chart)
