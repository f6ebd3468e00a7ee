"""Differences between two policies by token position and probability, for a subsample of a dump.

A live run sorts every token into buckets of position and of probability. For a dump that would cost
as much as all other figures, so a few responses of each step are used. They are selected by a hash
of their content, so that the selection does not depend on how the dump is split into shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from grpodoctor.measure.mismatch import BUCKETS, POSITION_EDGES, PROBABILITY_EDGES
from grpodoctor.measure.ragged import Ragged
from grpodoctor.measure.subsample import hash_ranks, lowest_ranked
from grpodoctor.support.arrays import np, with_errstate
from grpodoctor.vocabulary.values import Mean, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

BUCKETED_RESPONSES = 16
"""Responses per step: the standard error of the mean is a quarter of their spread."""

_NO_BUCKET = len(PROBABILITY_EDGES) - 1
"""Index after the last probability bucket, for tokens that are not finite."""
_DIFFERENCES = ("prob_diff", "logprob_diff")
BUCKET_METRICS = tuple(
    f"mismatch/{diff}_mean/{bucket}" for diff in _DIFFERENCES for bucket in BUCKETS
)
"""The metrics of each selected response."""

RankedMeans = tuple[int, tuple[float, ...]]
"""A response's hash rank, and its means of `BUCKET_METRICS`; NaN for a bucket without tokens."""


def bucket_means(
    learner: Ragged, sampler: Ragged, columns: Mapping[str, NDArray[np.generic]]
) -> dict[int, list[RankedMeans]]:
    """The bucket means of the selected responses, by step.

    Args:
        learner: log-probabilities of the generated tokens under the learner, in nats.
        sampler: the same under the sampler, with the same lengths.
        columns: `step`, and the columns of `gap_figures`.
    """
    hash_ranks_B = hash_ranks(
        _bits(columns["gap/q"]), _bits(columns["gap/logprob_diff"]) | np.uint64(1)
    )
    hash_ranks_B = np.where(columns["gap/tokens"].astype(np.int64) > 0, hash_ranks_B, np.uint64(0))
    rows = np.flatnonzero(lowest_ranked(hash_ranks_B, BUCKETED_RESPONSES, columns["step"]))
    by_step: dict[int, list[RankedMeans]] = {}
    if rows.size:
        means = _bucket_means(_select_rows(learner, rows), _select_rows(sampler, rows)).tolist()
        steps, ranks = columns["step"][rows].tolist(), hash_ranks_B[rows].tolist()
        for step, hash_rank, values in zip(steps, ranks, means, strict=True):
            by_step.setdefault(int(step), []).append((hash_rank, tuple(values)))
    return {step: keep_lowest(responses) for step, responses in by_step.items()}


def _select_rows(column: Ragged, rows: NDArray[np.integer]) -> Ragged:
    """Some of the responses, as float64."""
    values_N = np.concatenate([column.row(row) for row in rows.tolist()])
    return Ragged.of_lengths(values_N.astype(np.float64), column.lengths_B[rows])


def keep_lowest(responses: Sequence[RankedMeans]) -> list[RankedMeans]:
    """The responses of lowest hash rank, sorted."""
    return sorted(responses, key=lambda each: (each[0], repr(each[1])))[:BUCKETED_RESPONSES]


def bucket_readings(responses: Sequence[RankedMeans]) -> dict[str, Reading]:
    """The means over the selected responses of a step."""
    readings: dict[str, Reading] = {}
    if responses:
        table = np.array([means for _, means in responses])
        for column, name in enumerate(BUCKET_METRICS):
            values = table[:, column]
            known = values[~np.isnan(values)]
            if known.size:
                readings[name] = Mean.of(known)
    return readings


def _bits(values: NDArray[np.generic]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(values, np.float64).view(np.uint64)


@with_errstate(over="ignore", invalid="ignore", divide="ignore")
def _bucket_means(learner: Ragged, sampler: Ragged) -> NDArray[np.float64]:
    """The means of `BUCKET_METRICS` of each response, shape (B, 2 x buckets).

    Args:
        learner: float64; no response is empty. Tokens that are not finite are in no bucket.
        sampler: the same under the sampler.
    """
    gaps_N = np.abs(learner.values_N - sampler.values_N)
    finite_N = np.isfinite(gaps_N)
    q_N = np.exp(sampler.values_N)
    cells_N = np.zeros(q_N.size, np.intp)
    for edge in PROBABILITY_EDGES[1:-1]:
        cells_N += q_N >= edge
    cells_N[~finite_N] = _NO_BUCKET
    cells_N += np.repeat(np.arange(len(learner)) * (_NO_BUCKET + 1), learner.lengths_B)
    shape = (len(learner), _NO_BUCKET + 1)
    cell_counts = np.bincount(cells_N, minlength=shape[0] * shape[1])
    # Start of each position bucket in each response that is long enough, row by row.
    reached = learner.lengths_B[:, None] > np.array(POSITION_EDGES)
    starts = (learner.offsets_B[:-1, None] + np.array(POSITION_EDGES))[reached]
    counts = np.add.reduceat(finite_N, starts, dtype=np.int64)
    means: list[NDArray[np.float64]] = []
    for values_N in (np.abs(np.exp(learner.values_N) - q_N), gaps_N):
        kept_N = np.where(finite_N, values_N, 0.0)
        positions = np.full(reached.shape, np.nan)
        positions[reached] = np.add.reduceat(kept_N, starts) / counts
        sums = np.bincount(cells_N, weights=kept_N, minlength=cell_counts.size)
        means += [positions, (sums / cell_counts).reshape(shape)[:, :_NO_BUCKET]]
    return np.concatenate(means, axis=1)
