"""Bursts of clipped tokens: a few batches whose updates leave the trust region at once."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from grpodoctor.runs.series import Series

USUAL_FACTOR = 20.0
"""Multiple of the usual clipped share. Healthy runs clip .001 to .005 of the tokens, so it is also
about the least share of a burst over that of ordinary batches."""


class ClipBurst(NamedTuple):
    """Consecutive readings of a clipped share far above the usual one."""

    first_step: int
    last_step: int
    peak_step: int
    peak: float
    """Largest share of the burst."""
    usual: float
    """Median share of the window."""
    readings: int


def clip_bursts(shares: Series, least: float) -> Iterator[ClipBurst]:
    """The bursts in the window of a clipped share, the latest first.

    Args:
        shares: the clipped share of tokens, by step.
        least: smallest share of a burst.
    """
    readings = list(shares)
    usual = statistics.median(value for _, value in readings) if readings else 0.0
    threshold = max(least, USUAL_FACTOR * usual)
    groups = itertools.groupby(readings, key=lambda reading: reading[1] >= threshold)
    bursts = [list(group) for is_high, group in groups if is_high]
    for burst in reversed(bursts):
        step, peak = max(burst, key=lambda reading: reading[1])
        yield ClipBurst(burst[0][0], burst[-1][0], step, peak, usual, len(burst))
