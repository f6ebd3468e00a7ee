"""Whether each group of a batch is one response, sampled once or greedily and copied."""

from __future__ import annotations

from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.values import Rate

_DUPLICATES, _EXPECTED = "groups/duplicate_rate", "groups/expected_duplicate_rate"
_READINGS = 5
_MIN_EXCESS = 0.1
"""Share of copies beyond the expected one; see DAT006."""


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
