"""Readings of the gap between the engine that samples and the model that learns.

With p the learner's and p' the sampler's probability of a sampled token, w = p/p' is its importance
weight. Means over responses are means of the responses' own means, so that one long response does
not drown many short ones; the worst response is kept by name, since a batch mean hides it (Yao et
al. 2025). A token whose log-probability is not finite on either side is counted and takes part in
nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.batch import Flags, Floats, Integers, RolloutBatch
from grpodoctor.measure.divergence import k3
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Rate, Reading

POSITION_EDGES = (0, 16, 64, 256, 1024, 4096)
"""Where buckets of token position begin; the last one is open."""
PROBABILITY_EDGES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
"""Borders of the buckets of the sampler's probability: the tokens are drawn by it, so that what
is seen in a bucket is not selected by the difference itself."""
FAR = math.log(2)
"""|log p - log p'| from which on a token counts as far off: one side thinks it twice as likely."""

_POSITION_NAMES = tuple(
    f"position/{low}-{high}"
    for low, high in zip(
        POSITION_EDGES, [*(str(edge - 1) for edge in POSITION_EDGES[1:]), ""], strict=True
    )
)
_PROBABILITY_NAMES = tuple(
    f"probability/{low:g}-{high:g}" for low, high in pairwise(PROBABILITY_EDGES)
)
PER_RESPONSE = ("prob_diff_mean", "prob_diff_max", "logprob_diff_mean", "logprob_diff_max")
"""The figures that every response has of its own."""
_OVER_TOKENS = ("bias", "kl_k1", "kl_k3", "chi2", "ess", "pearson", "far_rate")


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The tokens that are finite on both sides, in the order of their responses."""

    rows_N: Integers
    """Which response."""
    position_N: Integers
    """Which of its generated tokens."""
    log_ratio_N: NDArray[np.float64]
    learner_N: NDArray[np.float64]
    """Probability."""
    sampler_N: NDArray[np.float64]

    @classmethod
    def select(cls, mask_BT: Flags, learner_N: Floats, sampler_N: Floats, finite_N: Flags) -> Self:
        rows_N, _ = np.nonzero(mask_BT)
        position_N = (np.cumsum(mask_BT, axis=1) - 1)[mask_BT]
        learner_N, sampler_N = learner_N[finite_N], sampler_N[finite_N]
        return cls(
            rows_N[finite_N],
            position_N[finite_N],
            learner_N - sampler_N,
            np.exp(learner_N),
            np.exp(sampler_N),
        )

    @property
    def starts(self) -> Integers:
        """Where each response that has tokens begins."""
        return np.flatnonzero(np.diff(self.rows_N, prepend=-1))

    def differences(self) -> dict[str, NDArray[np.float64]]:
        """|p - p'| and |log p - log p'| of every token."""
        return {
            "prob_diff": np.abs(self.learner_N - self.sampler_N),
            "logprob_diff": np.abs(self.log_ratio_N),
        }


@np.errstate(over="ignore", invalid="ignore")
def mismatch_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """`mismatch/*`; what the sampler's log-probabilities are needed for is absent without them."""
    if batch.learner_logprobs_BT is None or not batch.mask_BT.any():
        return {}
    mask_BT = batch.mask_BT
    learner_N = batch.learner_logprobs_BT[mask_BT].astype(np.float64)
    readings: dict[str, Reading] = {}
    if batch.entropy_BT is not None:
        readings["mismatch/nll_gap"] = Mean.of(-learner_N - batch.entropy_BT[mask_BT])
    if batch.sampler_logprobs_BT is None:
        return readings
    sampler_N = batch.sampler_logprobs_BT[mask_BT].astype(np.float64)
    finite_N = np.isfinite(learner_N - sampler_N)
    readings["mismatch/nonfinite"] = Rate.of(~finite_N)
    if not finite_N.any():
        why = NotApplicable("no token has a finite log-probability on both sides")
        return readings | {f"mismatch/{name}": why for name in (*PER_RESPONSE, *_OVER_TOKENS)}
    tokens = _Tokens.select(mask_BT, learner_N, sampler_N, finite_N)
    return readings | _over_tokens(tokens) | _per_response(tokens, batch.sequence_ids)


def _over_tokens(tokens: _Tokens) -> dict[str, Reading]:
    log_ratio_N = tokens.log_ratio_N
    bias = Mean.of(log_ratio_N)
    return {
        "mismatch/bias": bias,
        "mismatch/kl_k1": Mean(-bias.total, bias.count),
        "mismatch/kl_k3": Mean.of(k3(log_ratio_N)),
        "mismatch/chi2": Mean.of(np.expm1(2 * log_ratio_N)),
        "mismatch/ess": Mean.of([_effective_share(log_ratio_N)]),
        "mismatch/pearson": _pearson(tokens.learner_N, tokens.sampler_N),
        "mismatch/far_rate": Rate.of(np.abs(log_ratio_N) > FAR),
    }


def _effective_share(log_weights_N: NDArray[np.float64]) -> float:
    """(sum w)^2 / (N sum w^2) of the weights as they are, without a cap."""
    weights_N = np.exp(log_weights_N - log_weights_N.max())
    return float(weights_N.sum() ** 2 / (weights_N.size * np.dot(weights_N, weights_N)))


def _pearson(learner_N: NDArray[np.float64], sampler_N: NDArray[np.float64]) -> Reading:
    learner_N, sampler_N = learner_N - learner_N.mean(), sampler_N - sampler_N.mean()
    norm = math.sqrt(np.dot(learner_N, learner_N) * np.dot(sampler_N, sampler_N))
    if norm == 0:
        return NotApplicable("the probabilities of one side are all equal")
    return Mean.of([np.dot(learner_N, sampler_N) / norm])


def response_gaps(batch: RolloutBatch) -> dict[str, NDArray[np.float64]] | None:
    """The figures of `PER_RESPONSE`, shape (B,) each, NaN for a response without finite tokens.

    Returns:
        None where one side's log-probabilities were not recorded.
    """
    if batch.learner_logprobs_BT is None or batch.sampler_logprobs_BT is None:
        return None
    learner_N = batch.learner_logprobs_BT[batch.mask_BT].astype(np.float64)
    sampler_N = batch.sampler_logprobs_BT[batch.mask_BT].astype(np.float64)
    with np.errstate(invalid="ignore"):
        finite_N = np.isfinite(learner_N - sampler_N)
    gaps = {name: np.full(len(batch.sequence_ids), np.nan) for name in PER_RESPONSE}
    if finite_N.any():
        tokens = _Tokens.select(batch.mask_BT, learner_N, sampler_N, finite_N)
        starts = tokens.starts
        for name, values_N in tokens.differences().items():
            for figure, per_response in _mean_and_max(name, values_N, starts):
                gaps[figure][tokens.rows_N[starts]] = per_response
    return gaps


def _mean_and_max(
    name: str, values_N: NDArray[np.float64], starts: Integers
) -> list[tuple[str, NDArray[np.float64]]]:
    """Per response, the mean and the maximum of its tokens."""
    counts = np.diff(starts, append=values_N.size)
    return [
        (f"{name}_mean", np.add.reduceat(values_N, starts) / counts),
        (f"{name}_max", np.maximum.reduceat(values_N, starts)),
    ]


def _per_response(tokens: _Tokens, sequence_ids: list[str]) -> dict[str, Reading]:
    starts = tokens.starts
    ids = [sequence_ids[row] for row in tokens.rows_N[starts]]
    readings: dict[str, Reading] = {}
    for name, values_N in tokens.differences().items():
        for figure, per_response in _mean_and_max(name, values_N, starts):
            readings[f"mismatch/{figure}"] = Mean.of(per_response)
            readings[f"mismatch/{figure}/worst_sequence"] = Max.of(per_response, ids)
        readings |= _by_bucket(f"mismatch/{name}_mean", tokens, values_N)
    return readings


def _by_bucket(metric: str, tokens: _Tokens, values_N: NDArray[np.float64]) -> dict[str, Reading]:
    """The mean over responses of each response's mean within a bucket."""
    readings: dict[str, Reading] = {}
    for names, edges, keys_N in (
        (_POSITION_NAMES, POSITION_EDGES[1:], tokens.position_N),
        (_PROBABILITY_NAMES, PROBABILITY_EDGES[1:-1], tokens.sampler_N),
    ):
        cells_N = tokens.rows_N * len(names) + np.searchsorted(edges, keys_N, side="right")
        counts = np.bincount(cells_N, minlength=(int(tokens.rows_N[-1]) + 1) * len(names))
        sums = np.bincount(cells_N, weights=values_N, minlength=counts.size)
        counts, sums = counts.reshape(-1, len(names)), sums.reshape(-1, len(names))
        for column, name in enumerate(names):
            filled = counts[:, column] > 0
            if filled.any():
                means = sums[filled, column] / counts[filled, column]
                readings[f"{metric}/{name}"] = Mean.of(means)
    return readings
