"""Where in a response, and on which tokens, two policies differ: from some responses of a dump.

A live run sorts every token by its position and by its probability. Of a dump that costs as much as
all its other figures, so that of each step a few responses are drawn, by what they hold: the same
ones however the dump was cut, and whoever reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.mismatch import BUCKETS, POSITION_EDGES, PROBABILITY_EDGES
from grpodoctor.measure.ragged import Ragged
from grpodoctor.measure.subsample import drawn, lots_of
from grpodoctor.vocabulary.values import Mean, Reading

DRAWN = 16
"""Responses of a step that are sorted: the mean's error is a quarter of their spread."""

_NOWHERE = len(PROBABILITY_EDGES) - 1
"""Behind the last bucket of probabilities."""
_DIFFERENCES = ("prob_diff", "logprob_diff")
NAMES = tuple(f"mismatch/{diff}_mean/{bucket}" for diff in _DIFFERENCES for bucket in BUCKETS)
"""What a sorted response has a figure of."""

Sorted = tuple[int, tuple[float, ...]]
"""A response's lot, and its mean in every bucket of `NAMES`; NaN where it has no token there."""


def sort_drawn(
    learner: Ragged, sampler: Ragged, columns: Mapping[str, NDArray[np.generic]]
) -> dict[int, list[Sorted]]:
    """The responses of each step that are drawn, sorted.

    Args:
        learner: log-probabilities of the generated tokens under the learner, in nats.
        sampler: the same under the sampler; as many of each response.
        columns: `step`, and the gaps that `gap_figures` gives.
    """
    lots_B = lots_of(_bits(columns["gap/q"]), _bits(columns["gap/logprob_diff"]) | np.uint64(1))
    lots_B = np.where(columns["gap/tokens"].astype(np.int64) > 0, lots_B, np.uint64(0))
    rows = np.flatnonzero(drawn(lots_B, DRAWN, columns["step"]))
    found: dict[int, list[Sorted]] = {}
    if rows.size:
        figures = _figures(_of_rows(learner, rows), _of_rows(sampler, rows)).tolist()
        owners = zip(columns["step"][rows].tolist(), lots_B[rows].tolist(), figures, strict=True)
        for step, lot, each in owners:
            found.setdefault(int(step), []).append((lot, tuple(each)))
    return {step: lowest(each) for step, each in found.items()}


def _of_rows(column: Ragged, rows: NDArray[np.integer]) -> Ragged:
    """Some responses alone, as doubles."""
    values_N = np.concatenate([column.row(row) for row in rows.tolist()])
    return Ragged.of_lengths(values_N.astype(np.float64), column.lengths_B[rows])


def lowest(rows: Sequence[Sorted]) -> list[Sorted]:
    """Those of the lowest lots, in their order."""
    return sorted(rows, key=lambda each: (each[0], repr(each[1])))[:DRAWN]


def sorted_readings(rows: Sequence[Sorted]) -> dict[str, Reading]:
    """The means over the responses that were drawn of a step."""
    readings: dict[str, Reading] = {}
    if rows:
        table = np.array([figures for _, figures in rows])
        for column, name in enumerate(NAMES):
            values = table[:, column]
            known = values[~np.isnan(values)]
            if known.size:
                readings[name] = Mean.of(known)
    return readings


def _bits(values: NDArray[np.generic]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(values, np.float64).view(np.uint64)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _figures(learner: Ragged, sampler: Ragged) -> NDArray[np.float64]:
    """Each response's mean in every bucket of `NAMES`, shape (B, 2 x buckets).

    Args:
        learner: doubles; no response is empty. A token that is not finite is in no bucket.
        sampler: the same under the sampler.
    """
    ours_N, theirs_N = learner.values_N, sampler.values_N
    gaps_N = np.abs(ours_N - theirs_N)
    counted_N = np.isfinite(gaps_N)
    q_N = np.exp(theirs_N)
    places_N = np.zeros(q_N.size, np.intp)
    for edge in PROBABILITY_EDGES[1:-1]:
        places_N += q_N >= edge
    places_N[~counted_N] = _NOWHERE
    places_N += np.repeat(np.arange(len(learner)) * (_NOWHERE + 1), learner.lengths_B)
    shape = (len(learner), _NOWHERE + 1)
    within_B = np.bincount(places_N, minlength=shape[0] * shape[1])
    # Where each position's bucket begins in each response that reaches it, row after row.
    reached = learner.lengths_B[:, None] > np.array(POSITION_EDGES)
    begins = (learner.offsets_B[:-1, None] + np.array(POSITION_EDGES))[reached]
    counts = np.add.reduceat(counted_N, begins, dtype=np.int64)
    means: list[NDArray[np.float64]] = []
    for values_N in (np.abs(np.exp(ours_N) - q_N), gaps_N):
        kept_N = np.where(counted_N, values_N, 0.0)
        positions = np.full(reached.shape, np.nan)
        positions[reached] = np.add.reduceat(kept_N, begins) / counts
        sums = np.bincount(places_N, weights=kept_N, minlength=within_B.size)
        means += [positions, (sums / within_B).reshape(shape)[:, :_NOWHERE]]
    return np.concatenate(means, axis=1)
