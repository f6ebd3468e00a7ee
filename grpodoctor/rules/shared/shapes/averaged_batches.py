"""Readings that a trainer averages over the batches since its last row."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series

_AVERAGING = ("trl", "ms-swift")
"""Frameworks on the trainer of transformers, which averages its metrics over `logging_steps`."""


def batches_per_reading(chart: Chart, series: Series) -> int:
    """Batches whose mean one reading is; 1 if the framework logs single batches or is unknown."""
    steps = series.steps(WINDOW)
    if chart.manifest.framework not in _AVERAGING or len(steps) < 2:
        return 1
    return max(1, round(statistics.median(after - before for before, after in pairwise(steps))))


def equal_batches(shares: Sequence[float], batches: int, equal: float) -> float:
    """The share of batches in which no group varies, from readings of several batches each.

    A mean spread of exactly 0 over k batches is 0 in each of them. If a share p of the batches is
    without spread, independently, the share of such readings is p to the power of k.

    Args:
        shares: readings of the share of zero-variance groups; not empty.
        batches: batches per reading, k.
        equal: the share from which a reading counts as one without spread.
    """
    flat = sum(share >= equal for share in shares) / len(shares)
    return float(flat ** (1 / batches))
