"""Whether each group of a batch is one response, sampled once or greedily and copied."""

from __future__ import annotations

import math
from itertools import takewhile

from grpodoctor.rules.shared.health.run_health import ENTROPY_METRICS, RECENT, current_metric
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.values import Rate

_DUPLICATES, _EXPECTED = "groups/duplicate_rate", "groups/expected_duplicate_rate"
_READINGS = 5
_MIN_EXCESS = 0.1
"""Share of copies beyond the expected one; see DAT006."""
_LARGEST_VOCABULARY = 300_000
_ROUNDING = 1e-9


def copies_whole_groups(chart: Chart) -> bool:
    """Whether all responses of each group are equal in the latest batches, and not by chance.

    A policy without entropy also repeats itself, and its log-probabilities tell.
    """
    reading, size = chart.reading(_DUPLICATES), chart.knobs.get("group_size")
    if not isinstance(reading, Rate) or not isinstance(size, int) or size < 2:
        return False
    most = 1 - 1 / size
    if reading.hits < most * reading.count or not chart.is_fresh(_EXPECTED):
        return False
    observed = chart.series(_DUPLICATES).tail(_READINGS)
    expected = chart.series(_EXPECTED).tail(_READINGS)
    if len(observed) < _READINGS or len(expected) < _READINGS:
        return False
    return min(observed) >= most and max(expected) <= most - _MIN_EXCESS


def chance_of_whole_groups(chart: Chart) -> float:
    """Upper bound of the chance that every group of the latest batches is one response.

    It follows from entropy and length, where no probability of a response is known; 1 where a group
    has two responses, or if a metric is not logged. A response of at most L tokens, whose most
    likely form has probability p, has an entropy of at most ln 2 + (1 - p) L ln V (Fano's
    inequality). A group of copies has a chance of at most p, and the mean entropy bounds its mean.
    """
    copies, size = chart.series(_DUPLICATES), chart.series("groups/size")
    entropy = chart.series(current_metric(chart, ENTROPY_METRICS))
    mean, longest = chart.series("length/mean"), chart.series("length/max")
    reading = chart.reading(_DUPLICATES)
    if not isinstance(reading, Rate) or not all(map(len, (copies, size, entropy, mean, longest))):
        return 1.0
    if not chart.is_fresh(_DUPLICATES) or size.last < 2:
        return 1.0
    whole = 1 - 1 / size.last - _ROUNDING
    count = len(list(takewhile(lambda share: share >= whole, reversed(copies.tail(len(copies))))))
    if count < _READINGS:
        return 1.0
    nats = entropy.level(RECENT) * mean.level(RECENT)
    widest = max(longest.tail(len(longest))) * math.log(_LARGEST_VOCABULARY)
    missing = min(1.0, (nats - math.log(2)) / widest)
    return math.exp(-max(0.0, missing) * count * reading.count / size.last)
