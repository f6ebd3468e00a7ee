"""Estimates of pass rates, and of groups with a learning signal, from a few responses per prompt.

A group has a learning signal if it has both correct and incorrect responses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MIN_PROMPTS = 4
"""With fewer prompts, their spread says nothing."""


def pass_at_k(solved_PS: NDArray[np.bool_], k: int) -> float:
    """Probability that at least one of k responses is correct, mean over prompts.

    Unbiased. Source: Chen et al. 2021.

    Args:
        solved_PS: whether each of S responses to P prompts is correct.
        k: at most S.
    """
    from scipy.special import gammaln

    wrong_P = (~solved_PS).sum(axis=1).astype(float)
    samples = solved_PS.shape[1]
    possible = wrong_P >= k
    logs_P = np.full(len(wrong_P), -np.inf)
    logs_P[possible] = (
        gammaln(wrong_P[possible] + 1)
        - gammaln(wrong_P[possible] - k + 1)
        + gammaln(samples - k + 1)
        - gammaln(samples + 1)
    )
    return float(np.mean(1 - np.exp(logs_P)))


def rate_error(solved_PS: NDArray[np.bool_]) -> float:
    """Standard error of the pass rate, over prompts; infinite for fewer than four prompts.

    If all responses are alike it is not zero but the error with two more right and two more wrong
    responses (Agresti and Coull 1998).
    """
    prompts = len(solved_PS)
    if prompts < _MIN_PROMPTS:
        return float("inf")
    observed = float(solved_PS.mean(axis=1).std(ddof=1)) / np.sqrt(prompts)
    rate = (solved_PS.sum() + 2) / (solved_PS.size + 4)
    return max(float(observed), float(np.sqrt(rate * (1 - rate) / solved_PS.size)))


def fit_beta(solved_PS: NDArray[np.bool_]) -> tuple[float, float]:
    """Parameters of a beta distribution of the prompts' pass rates, by maximum likelihood.

    Counts of a few responses follow a beta-binomial distribution. A prompt that is solved 0 of 4
    times may still be solvable; treating its rate as zero would make every group size look useless.
    """
    from scipy.optimize import minimize
    from scipy.special import betaln

    samples = solved_PS.shape[1]
    right_K = np.arange(samples + 1)
    prompts_K = np.bincount(solved_PS.sum(axis=1), minlength=samples + 1)

    def negative_log_likelihood(logs: NDArray[np.float64]) -> float:
        alpha, beta = np.exp(np.clip(logs, -6, 6))
        logs_K = betaln(right_K + alpha, samples - right_K + beta) - betaln(alpha, beta)
        return -float(prompts_K @ logs_K)

    rate = float(np.clip(solved_PS.mean(), 0.02, 0.98))
    starts = [np.log([rate * mass, (1 - rate) * mass]) for mass in (0.5, 2.0, 10.0)]
    fits = [minimize(negative_log_likelihood, start, method="Nelder-Mead") for start in starts]
    alpha, beta = np.exp(np.clip(min(fits, key=lambda fit: fit.fun).x, -6, 6))
    return float(alpha), float(beta)


def signal_rate_by_fit(alpha: float, beta: float, group_size: int) -> float:
    """Expected share of groups with a learning signal, for beta-distributed pass rates."""
    from scipy.stats import betabinom

    all_wrong, all_right = betabinom.pmf([0, group_size], group_size, alpha, beta)
    return float(1 - all_wrong - all_right)


def outside_rate(alpha: float, beta: float, low: float, high: float) -> float:
    """Expected share of prompts with a pass rate below `low` or above `high`."""
    from scipy.stats import beta as distribution

    return float(distribution.cdf(low, alpha, beta) + distribution.sf(high, alpha, beta))


def signal_rate(solved_PS: NDArray[np.bool_], group_size: int) -> float:
    """Expected share of groups with a learning signal.

    Up to S responses per group the estimate is unbiased for any distribution of pass rates: it
    counts all choices of `group_size` from the S responses. Larger groups use the fitted beta.
    """
    if group_size <= solved_PS.shape[1]:
        return pass_at_k(solved_PS, group_size) + pass_at_k(~solved_PS, group_size) - 1
    return signal_rate_by_fit(*fit_beta(solved_PS), group_size)


def signal_rate_interval(
    solved_PS: NDArray[np.bool_], group_size: int, *, seed: int, draws: int = 100
) -> tuple[float, float]:
    """90 % bootstrap interval of `signal_rate` over prompts."""
    rng = np.random.default_rng(seed)
    prompts = len(solved_PS)
    rates = [
        signal_rate(solved_PS[rng.integers(0, prompts, prompts)], group_size) for _ in range(draws)
    ]
    low, high = np.quantile(rates, (0.05, 0.95))
    return float(low), float(high)
