"""k1: the log-ratio to the reference.

Formula
    log(new / reference) per token.

Denominator
    That of the loss, as for all penalties.

Settings
    loss.kl_coefficient, 0 by default. As a penalty in the loss it is available for comparison; use
    it in the reward, with loss.kl_placement = "reward".

Effect on metrics
    kl/reference/k1, which can be negative with few samples. In the loss, its on-policy gradient has
    expectation zero: it pushes every token down equally and does not constrain the policy.

Other implementations
    verl's kl_penalty kl and k1. TRL's RLOO subtracts it from the reward.

Do not combine with
    No conflict. See k2 for a penalty with the intended gradient.

Source
    Schulman, Approximating KL Divergence; on the gradients Tang and Munos, arXiv 2506.09477.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.kl.base import KlInputs


def k1(inputs: KlInputs) -> Tensor:
    """log(new / reference) per token, shape (B, T)."""
    return -inputs.gap()
