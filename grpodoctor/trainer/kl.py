"""Estimators of KL(learner, reference) from the sampled tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _k1(gap_BT: Tensor) -> Tensor:
    return -gap_BT


def _k2(gap_BT: Tensor) -> Tensor:
    return gap_BT.square() / 2


def _k3(gap_BT: Tensor) -> Tensor:
    return torch.expm1(gap_BT) - gap_BT


_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {"k1": _k1, "k2": _k2, "k3": _k3}


def kl_penalty(estimator: str, new_logprobs_BT: Tensor, reference_logprobs_BT: Tensor) -> Tensor:
    """The penalty per token, with a gradient through the new log-probabilities.

    Source: Schulman, Approximating KL Divergence. As a loss, k1 has a gradient of zero expectation
    on-policy and only k2's is that of the divergence; GRPO uses k3.
    """
    return _ESTIMATORS[estimator](reference_logprobs_BT - new_logprobs_BT)
