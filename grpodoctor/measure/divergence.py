"""Estimators of a KL divergence from samples. Source: Schulman, Approximating KL Divergence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpodoctor.support.arrays import np, with_errstate
from grpodoctor.vocabulary.values import Mean, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray


@with_errstate(over="ignore", invalid="ignore")
def k3(log_ratio_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """Terms e^d - d - 1 of KL(sampled, other), with d = log other - log sampled; never negative."""
    terms_N: NDArray[np.float64] = np.expm1(log_ratio_N) - log_ratio_N
    return np.maximum(terms_N, 0.0, out=terms_N)


@with_errstate(over="ignore", invalid="ignore")
def kl_readings(name: str, log_ratio_N: NDArray[np.float64]) -> dict[str, Reading]:
    """`<name>/k1`, `/k2` and `/k3` of KL(sampled, other).

    Args:
        name: metric name without the estimator.
        log_ratio_N: log other - log sampled, at tokens sampled from the first policy.
    """
    ratio = Mean.of(log_ratio_N)
    return {
        f"{name}/k1": Mean(-ratio.total, ratio.count, ratio.nonfinite),
        f"{name}/k2": Mean.of(log_ratio_N**2 / 2),
        f"{name}/k3": Mean.of(k3(log_ratio_N)),
    }
