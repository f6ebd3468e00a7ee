"""What pass rates mean for groups: estimates from a few responses a prompt."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FEWEST = 4
"""Prompts: the scatter of fewer says nothing."""


def pass_at_k(solved_PS: NDArray[np.bool_], k: int) -> float:
    """Chance that one of k responses is right, mean over prompts; unbiased (Chen et al. 2021).

    Args:
        solved_PS: P prompts, S responses each.
        k: at most S.
    """
    from scipy.special import gammaln

    wrong = (~solved_PS).sum(axis=1).astype(float)
    samples = solved_PS.shape[1]
    possible = wrong >= k
    logs = np.full(len(wrong), -np.inf)
    logs[possible] = (
        gammaln(wrong[possible] + 1)
        - gammaln(wrong[possible] - k + 1)
        + gammaln(samples - k + 1)
        - gammaln(samples + 1)
    )
    return float(np.mean(1 - np.exp(logs)))


def rate_error(solved_PS: NDArray[np.bool_]) -> float:
    """Standard error of a pass rate, over prompts.

    Where all responses are alike it is not zero: it is that with two more responses right and two
    more wrong (Agresti and Coull 1998). Infinite for a few prompts, which tell nothing of others.
    """
    prompts = len(solved_PS)
    if prompts < _FEWEST:
        return float("inf")
    seen = float(solved_PS.mean(axis=1).std(ddof=1)) / np.sqrt(prompts)
    rate = (solved_PS.sum() + 2) / (solved_PS.size + 4)
    return max(float(seen), float(np.sqrt(rate * (1 - rate) / solved_PS.size)))


def beta_of(solved_PS: NDArray[np.bool_]) -> tuple[float, float]:
    """The beta distribution that the prompts' pass rates seem to come from, by likelihood.

    Counts out of a few responses are beta-binomial; a prompt solved 0 of 4 times is not one that
    can never be solved, and taken for one it would make every group size look useless.
    """
    from scipy.optimize import minimize
    from scipy.special import betaln

    samples = solved_PS.shape[1]
    right_K = np.arange(samples + 1)
    prompts_K = np.bincount(solved_PS.sum(axis=1), minlength=samples + 1)

    def unlikelihood(logs: NDArray[np.float64]) -> float:
        alpha, beta = np.exp(np.clip(logs, -6, 6))
        logs_K = betaln(right_K + alpha, samples - right_K + beta) - betaln(alpha, beta)
        return -float(prompts_K @ logs_K)

    rate = float(np.clip(solved_PS.mean(), 0.02, 0.98))
    starts = [np.log([rate * mass, (1 - rate) * mass]) for mass in (0.5, 2.0, 10.0)]
    fits = [minimize(unlikelihood, start, method="Nelder-Mead") for start in starts]
    alpha, beta = np.exp(np.clip(min(fits, key=lambda fit: fit.fun).x, -6, 6))
    return float(alpha), float(beta)


def signal_rate(alpha: float, beta: float, group_size: int) -> float:
    """Expected share of groups with both right and wrong responses."""
    from scipy.stats import betabinom

    none, all_ = betabinom.pmf([0, group_size], group_size, alpha, beta)
    return float(1 - none - all_)


def outside_rate(alpha: float, beta: float, low: float, high: float) -> float:
    """Expected share of prompts whose rate is below one bound or above the other."""
    from scipy.stats import beta as distribution

    return float(distribution.cdf(low, alpha, beta) + distribution.sf(high, alpha, beta))


def signal_of(solved_PS: NDArray[np.bool_], group_size: int) -> float:
    """Expected share of groups with both right and wrong responses, from a few responses a prompt.

    Up to as many responses as there are, it is unbiased whatever the rates are: the chance that
    some of a choice of them are right, and some wrong. Beyond, the fit has to say.
    """
    if group_size <= solved_PS.shape[1]:
        return pass_at_k(solved_PS, group_size) + pass_at_k(~solved_PS, group_size) - 1
    return signal_rate(*beta_of(solved_PS), group_size)


def signal_interval(
    solved_PS: NDArray[np.bool_], group_size: int, *, seed: int, draws: int = 100
) -> tuple[float, float]:
    """Bounds of nine tenths for `signal_of`: prompts are drawn anew."""
    rng = np.random.default_rng(seed)
    prompts = len(solved_PS)
    rates = [
        signal_of(solved_PS[rng.integers(0, prompts, prompts)], group_size) for _ in range(draws)
    ]
    low, high = np.quantile(rates, (0.05, 0.95))
    return float(low), float(high)
