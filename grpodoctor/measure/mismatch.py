"""Readings of the mismatch between the sampling engine and the learner.

With p the learner's and p' the sampler's probability of a sampled token, w = p/p' is its importance
weight. Means over responses are means of each response's mean, so that a long response does not
outweigh many short ones. The worst response is kept with its id, because a batch mean hides it (Yao
et al. 2025). A token whose log-probability is not finite on either side is counted as such and
excluded from everything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from grpodoctor.measure.divergence import k3
from grpodoctor.support.arrays import np, with_errstate
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Rate, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from grpodoctor.measure.batch import Floats, Integers, RolloutBatch

POSITION_EDGES = (0, 16, 64, 256, 1024, 4096)
"""Starts of the position buckets; the last one is open."""
PROBABILITY_EDGES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
"""Bounds of the buckets of the sampler's probability. Tokens are sampled by this probability, so
the difference itself does not select the tokens of a bucket."""
FAR = math.log(2)
"""|log p - log p'| above which a token counts as far off: twice as likely on one side."""

_ROUNDING = 1e-15
"""Deviation of a probability from its mean that rounding causes."""

_POSITION_NAMES = tuple(
    f"position/{low}-{high}"
    for low, high in zip(
        POSITION_EDGES, [*(str(edge - 1) for edge in POSITION_EDGES[1:]), ""], strict=True
    )
)
_PROBABILITY_NAMES = tuple(
    f"probability/{low:g}-{high:g}" for low, high in pairwise(PROBABILITY_EDGES)
)
BUCKETS = (*_POSITION_NAMES, *_PROBABILITY_NAMES)
"""Token buckets; each token is in one position bucket and one probability bucket."""
PER_RESPONSE = ("prob_diff_mean", "prob_diff_max", "logprob_diff_mean", "logprob_diff_max")
"""The metrics that are computed per response."""
_OVER_TOKENS = ("bias", "kl_k1", "kl_k3", "chi2", "ess", "pearson", "far_rate")


@dataclass(frozen=True, slots=True)
class TokenPairs:
    """The tokens with finite log-probabilities on both sides, in the order of their responses."""

    rows_N: Integers
    """Index of the response."""
    position_N: Integers
    """Index among the response's generated tokens."""
    log_ratio_N: NDArray[np.float64]
    learner_N: NDArray[np.float64]
    """Probabilities."""
    sampler_N: NDArray[np.float64]
    nonfinite: Rate
    """Share of excluded tokens."""

    @classmethod
    def select(
        cls,
        rows_N: Integers,
        position_N: Integers,
        learner_logprobs_N: Floats,
        sampler_logprobs_N: Floats,
    ) -> Self:
        """Select the tokens with finite log-probabilities on both sides.

        Args:
            rows_N: index of each token's response, ascending.
            position_N: index among the response's generated tokens.
            learner_logprobs_N: log-probabilities under the learner, in nats.
            sampler_logprobs_N: the same under the sampler.
        """
        learner_N = learner_logprobs_N.astype(np.float64)
        sampler_N = sampler_logprobs_N.astype(np.float64)
        with np.errstate(invalid="ignore"):
            finite_N = np.isfinite(learner_N - sampler_N)
        learner_N, sampler_N = learner_N[finite_N], sampler_N[finite_N]
        with np.errstate(over="ignore"):
            return cls(
                rows_N[finite_N],
                position_N[finite_N],
                learner_N - sampler_N,
                np.exp(learner_N),
                np.exp(sampler_N),
                Rate.of(~finite_N),
            )

    @property
    def starts(self) -> Integers:
        """Start of each response that has tokens."""
        return np.flatnonzero(np.diff(self.rows_N, prepend=-1))

    @with_errstate(invalid="ignore")
    def differences(self) -> dict[str, NDArray[np.float64]]:
        """|p - p'| and |log p - log p'| of every token."""
        return {
            "prob_diff": np.abs(self.learner_N - self.sampler_N),
            "logprob_diff": np.abs(self.log_ratio_N),
        }

    def per_response(self) -> dict[str, NDArray[np.float64]]:
        """The metrics of `PER_RESPONSE`, one value per entry of `starts`."""
        figures: dict[str, NDArray[np.float64]] = {}
        starts = self.starts
        for name, values_N in self.differences().items():
            figures |= _mean_and_max(name, values_N, starts)
        return figures


@dataclass(frozen=True, slots=True)
class PairMoments:
    """Mergeable moments for the effective sample size and the correlation of all tokens.

    Weights and squares are scaled by a common peak, because their logarithms are unbounded.
    """

    count: int
    peak: float
    """The largest log-weight."""
    weights: float
    """Sum of the weights, divided by e^peak."""
    squares: float
    """Sum of the squared weights, divided by e^(2 peak)."""
    learner: float
    """Mean probability under the learner."""
    sampler: float
    learner_spread: float
    """Sum of squared deviations from the mean."""
    sampler_spread: float
    both: float
    """Sum of the products of deviations."""

    @classmethod
    @with_errstate(over="ignore", invalid="ignore")
    def of(cls, tokens: TokenPairs) -> Self:
        """The moments of at least one token."""
        log_ratio_N = tokens.log_ratio_N
        peak = float(log_ratio_N.max())
        weights_N = np.exp(log_ratio_N - peak)
        learner, sampler = float(tokens.learner_N.mean()), float(tokens.sampler_N.mean())
        learner_N, sampler_N = tokens.learner_N - learner, tokens.sampler_N - sampler
        return cls(
            log_ratio_N.size,
            peak,
            float(weights_N.sum()),
            float(np.dot(weights_N, weights_N)),
            learner,
            sampler,
            float(np.dot(learner_N, learner_N)),
            float(np.dot(sampler_N, sampler_N)),
            float(np.dot(learner_N, sampler_N)),
        )

    def merge(self, other: Self) -> Self:
        """The moments of the union, up to rounding. Source: Chan, Golub and LeVeque 1983."""
        peak = max(self.peak, other.peak)
        own_scale, other_scale = math.exp(self.peak - peak), math.exp(other.peak - peak)
        count = self.count + other.count
        pull = self.count * other.count / count
        learner, sampler = other.learner - self.learner, other.sampler - self.sampler
        return type(self)(
            count,
            peak,
            self.weights * own_scale + other.weights * other_scale,
            self.squares * own_scale * own_scale + other.squares * other_scale * other_scale,
            self.learner + learner * other.count / count,
            self.sampler + sampler * other.count / count,
            self.learner_spread + other.learner_spread + learner * learner * pull,
            self.sampler_spread + other.sampler_spread + sampler * sampler * pull,
            self.both + other.both + learner * sampler * pull,
        )

    def readings(self) -> dict[str, Reading]:
        """`mismatch/ess` and `mismatch/pearson` of these tokens."""
        # (sum w)^2 / (N sum w^2) of the uncapped weights.
        share = self.weights**2 / (self.count * self.squares)
        spreads = (self.learner_spread, self.sampler_spread)
        readings: dict[str, Reading] = {"mismatch/ess": Mean.of([share])}
        if min(spreads) <= self.count * _ROUNDING**2:
            why = NotApplicable("the probabilities of one side are all equal")
            return readings | {"mismatch/pearson": why}
        correlation = self.both / math.sqrt(spreads[0] * spreads[1])
        return readings | {"mismatch/pearson": Mean.of([correlation])}


@with_errstate(invalid="ignore")
def mismatch_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """`mismatch/*`; most readings require the sampler's log-probabilities."""
    if batch.learner_logprobs_BT is None or not batch.mask_BT.any():
        return {}
    readings: dict[str, Reading] = {}
    if batch.entropy_BT is not None:
        learner_N = batch.learner_logprobs_BT[batch.mask_BT].astype(np.float64)
        readings["mismatch/nll_gap"] = Mean.of(-learner_N - batch.entropy_BT[batch.mask_BT])
    tokens = _tokens_of(batch)
    return readings if tokens is None else readings | pair_readings(tokens, batch.sequence_ids)


def _tokens_of(batch: RolloutBatch) -> TokenPairs | None:
    """The token pairs; None if one side's log-probabilities were not recorded."""
    if batch.learner_logprobs_BT is None or batch.sampler_logprobs_BT is None:
        return None
    mask_BT = batch.mask_BT
    return TokenPairs.select(
        np.nonzero(mask_BT)[0],
        (np.cumsum(mask_BT, axis=1) - 1)[mask_BT],
        batch.learner_logprobs_BT[mask_BT],
        batch.sampler_logprobs_BT[mask_BT],
    )


@with_errstate(over="ignore", invalid="ignore")
def pair_readings(tokens: TokenPairs, sequence_ids: Sequence[str]) -> dict[str, Reading]:
    """`mismatch/*` of tokens with log-probabilities on both sides.

    Args:
        tokens: the tokens with finite values.
        sequence_ids: ids of the responses to which `rows_N` refers.
    """
    readings: dict[str, Reading] = {"mismatch/nonfinite": tokens.nonfinite}
    if not tokens.rows_N.size:
        why = NotApplicable("no token has a finite log-probability on both sides")
        return readings | {f"mismatch/{name}": why for name in (*PER_RESPONSE, *_OVER_TOKENS)}
    return readings | _over_tokens(tokens) | _per_response(tokens, sequence_ids)


def _over_tokens(tokens: TokenPairs) -> dict[str, Reading]:
    log_ratio_N = tokens.log_ratio_N
    bias = Mean.of(log_ratio_N)
    return {
        "mismatch/bias": bias,
        "mismatch/kl_k1": Mean(-bias.total, bias.count),
        "mismatch/kl_k3": Mean.of(k3(log_ratio_N)),
        "mismatch/chi2": Mean.of(np.expm1(2 * log_ratio_N)),
        "mismatch/far_rate": Rate.of(np.abs(log_ratio_N) > FAR),
        **PairMoments.of(tokens).readings(),
    }


def response_gaps(batch: RolloutBatch) -> dict[str, NDArray[np.float64]] | None:
    """The metrics of `PER_RESPONSE`, shape (B,) each; NaN for a response without finite tokens.

    Returns:
        None if one side's log-probabilities were not recorded.
    """
    tokens = _tokens_of(batch)
    if tokens is None:
        return None
    gaps = {name: np.full(len(batch.sequence_ids), np.nan) for name in PER_RESPONSE}
    if tokens.rows_N.size:
        rows = tokens.rows_N[tokens.starts]
        for figure, per_response in tokens.per_response().items():
            gaps[figure][rows] = per_response
    return gaps


def _mean_and_max(
    name: str, values_N: NDArray[np.float64], starts: Integers
) -> dict[str, NDArray[np.float64]]:
    """Mean and maximum over the tokens of each response."""
    counts = np.diff(starts, append=values_N.size)
    return {
        f"{name}_mean": np.add.reduceat(values_N, starts) / counts,
        f"{name}_max": np.maximum.reduceat(values_N, starts),
    }


def _per_response(tokens: TokenPairs, sequence_ids: Sequence[str]) -> dict[str, Reading]:
    ids = [sequence_ids[row] for row in tokens.rows_N[tokens.starts]]
    readings: dict[str, Reading] = {}
    for figure, per_response in tokens.per_response().items():
        readings[f"mismatch/{figure}"] = Mean.of(per_response)
        readings[f"mismatch/{figure}/worst_sequence"] = Max.of(per_response, ids)
    for name, values_N in tokens.differences().items():
        readings |= _by_bucket(f"mismatch/{name}_mean", tokens, values_N)
    return readings


def _by_bucket(
    metric: str, tokens: TokenPairs, values_N: NDArray[np.float64]
) -> dict[str, Reading]:
    """The mean over responses of each response's mean in a bucket."""
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
