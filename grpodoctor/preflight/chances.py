"""What pass rates mean for groups: estimates from a few responses a prompt."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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


def beta_of(solved_PS: NDArray[np.bool_]) -> tuple[float, float]:
    """The beta distribution that the prompts' pass rates seem to come from, by likelihood.

    Counts out of a few responses are beta-binomial; a prompt solved 0 of 4 times is not one that
    can never be solved, and taken for one it would make every group size look useless.
    """
    from scipy.optimize import minimize
    from scipy.stats import betabinom

    counts, samples = solved_PS.sum(axis=1), solved_PS.shape[1]

    def unlikelihood(logs: NDArray[np.float64]) -> float:
        alpha, beta = np.exp(np.clip(logs, -6, 6))
        return -float(betabinom.logpmf(counts, samples, alpha, beta).sum())

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
