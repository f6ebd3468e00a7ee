"""Bootstrap intervals of the figures, resampled by prompt, in one pass.

Responses to one prompt are alike, so prompts are resampled. Instead of drawing with replacement,
each prompt gets a Poisson weight with mean 1 in each replicate (Chamandy et al. 2012, Estimating
Uncertainty for Massive Data Streams). This needs neither the number of prompts in advance nor a
second pass.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from grpodoctor.measure.batch import Integers
from grpodoctor.measure.divergence import k3
from grpodoctor.measure.mismatch import FAR, PER_RESPONSE
from grpodoctor.probe.comparison.hashed_random import poisson
from grpodoctor.probe.comparison.pair import ShardPair

REPLICATES = 400
FEWEST_PROMPTS = 5
"""Intervals from fewer prompts are too narrow to be shown."""

_AT_ONCE = 512
"""Prompts whose weights are in memory at a time: a user's engine may write shards of any size."""

LARGEST_LOG_WEIGHT = 300.0
"""Upper bound on log-weights in sums of weights and squares, which must stay finite."""

_MEANS = {
    **{name: ("responses", name) for name in PER_RESPONSE},
    "bias": ("tokens", "log_ratio"),
    "kl_k3": ("tokens", "k3"),
    "chi2": ("tokens", "chi2"),
    "far_rate": ("tokens", "far"),
    "nll_gap": ("with_entropy", "surprise"),
}
"""Figures that are a sum divided by a count."""
FIGURES = (*_MEANS, "kl_k1", "ess", "pearson")
"""Figures with intervals, without `mismatch/`; `nll_gap` needs the learner's entropies."""


class Bootstrap:
    """Replicates of the sums behind the figures.

    Args:
        seed: seed of the resampling.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._sums: dict[str, NDArray[np.float64]] = {}

    def add(self, pair: ShardPair) -> None:
        """Add a shard's prompts with their weight in each replicate."""
        prompts, of_row = np.unique(pair.sampled.prompt_B, return_inverse=True)
        per_prompt = {}
        for name, values, rows in _terms(pair):
            # Finite values only: the readings report an overflow.
            finite = np.where(np.isfinite(values), values, 0.0)
            per_prompt[name] = np.bincount(of_row[rows], finite, len(prompts))
        replicates = np.arange(REPLICATES)[:, None]
        for start in range(0, len(prompts), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            weights_RP = poisson(self._seed, replicates, prompts[None, part])
            for name, values_P in per_prompt.items():
                sums = self._sums.setdefault(name, np.zeros(REPLICATES))
                sums += weights_RP @ values_P[part]

    def intervals(self, prompts: int) -> dict[str, tuple[float, float]]:
        """The 95 % interval of each of `FIGURES`: quantiles of the replicates.

        The 2.5 and 97.5 % quantiles are too narrow for few prompts. They are widened like a mean's
        interval by Student's t (Hesterberg 2015, What Teachers Should Know About the Bootstrap:
        expanded percentiles).

        Args:
            prompts: number of prompts, two or more.
        """
        found = {}
        outer = stdtrit(prompts - 1, 0.025) * math.sqrt(prompts / (prompts - 1))
        share = float(ndtr(outer))
        for name, values_R in self._figures().items():
            finite = values_R[np.isfinite(values_R)]
            if finite.size > REPLICATES / 2:
                low, high = np.quantile(finite, [share, 1 - share])
                found[name] = (float(low), float(high))
        return found

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def _figures(self) -> dict[str, NDArray[np.float64]]:
        if not self._sums:
            return {}
        sums = self._sums
        count = sums["tokens"]
        figures = {
            name: sums[term] / sums[over] for name, (over, term) in _MEANS.items() if over in sums
        }
        figures["kl_k1"] = -figures["bias"]
        figures["ess"] = sums["weight"] ** 2 / (count * sums["square"])
        learner, sampler = sums["learner"] / count, sums["sampler"] / count
        both = sums["both"] / count - learner * sampler
        spread = (sums["learner_square"] / count - learner**2) * (
            sums["sampler_square"] / count - sampler**2
        )
        figures["pearson"] = both / np.sqrt(spread)
        return figures


def _terms(pair: ShardPair) -> list[tuple[str, NDArray[np.float64], Integers]]:
    """Name, values and responses of each quantity that is summed by prompt."""
    tokens, rows_N = pair.tokens, pair.tokens.rows_N
    log_ratio_N = tokens.log_ratio_N
    weights_N = np.exp(np.minimum(log_ratio_N, LARGEST_LOG_WEIGHT))
    per_token = {
        "tokens": np.ones(len(rows_N)),
        "log_ratio": log_ratio_N,
        "k3": k3(log_ratio_N),
        "chi2": weights_N**2 - 1,
        "far": (np.abs(log_ratio_N) > FAR).astype(np.float64),
        "weight": weights_N,
        "square": weights_N**2,
        "learner": tokens.learner_N,
        "sampler": tokens.sampler_N,
        "learner_square": tokens.learner_N**2,
        "sampler_square": tokens.sampler_N**2,
        "both": tokens.learner_N * tokens.sampler_N,
    }
    per_response = {"responses": np.ones(len(pair.rows)), **pair.figures}
    return [
        *((name, values, rows_N) for name, values in per_token.items()),
        *((name, values, pair.rows) for name, values in per_response.items()),
        *_surprises(pair),
    ]


def _surprises(pair: ShardPair) -> list[tuple[str, NDArray[np.float64], Integers]]:
    """-log p minus entropy in the learner, if it reports entropies."""
    if pair.scored.entropy_N is None:
        return []
    terms_N = -pair.scored.logprobs_N.astype(np.float64) - pair.scored.entropy_N
    finite_N = np.isfinite(terms_N)
    terms_N, rows_N = terms_N[finite_N], pair.sampled.rows_N[finite_N]
    return [("with_entropy", np.ones(len(terms_N)), rows_N), ("surprise", terms_N, rows_N)]
