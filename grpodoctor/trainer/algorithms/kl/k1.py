"""k1: the plain log-ratio to the reference.

Formula
    log(new / reference) per token.

Denominator
    That of the loss, as for all penalties.

Settings
    loss.kl_coefficient, 0 by default. As a penalty in the loss it is here for comparison: its home
    is the reward, with loss.kl_placement = "reward".

Effect on metrics
    kl/reference/k1, which falls below zero where the samples are few. In the loss its gradient has
    an expectation of zero on-policy: it pushes every token down alike and holds nothing.

Other implementations
    verl's kl_penalty kl and k1; TRL's RLOO takes it off the reward.

Do not combine with
    Nothing; but see k2 for what it is meant to do.

Source
    Schulman, Approximating KL Divergence; on the gradients Tang and Munos, arXiv 2506.09477.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.kl.base import KlInputs


def k1(inputs: KlInputs) -> Tensor:
    """log(new / reference) per token, shape (B, T)."""
    return -inputs.gap()
