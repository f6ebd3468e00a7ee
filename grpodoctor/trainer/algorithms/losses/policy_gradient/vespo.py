"""VESPO: REINFORCE weighted by a soft kernel of the whole response's importance weight.

Formula
    -sg[phi(W)] A log new per token. W is the product over the response's tokens of new / sampler,
    phi(W) = W^k exp(lambda (1 - W)), k and lambda depend on the sign of A, sg = stop gradient.
    phi(1) = 1. W^k suppresses responses that became unlikely, the exponential those that became
    likely.

Denominator
    token-mean.

Settings
    power_positive 2 and decay_positive 3 for A >= 0; power_negative 3 and decay_negative 2 for
    A < 0.

Effect on metrics
    clip/gate_mean is the mean of phi. W compounds with length, so phi falls quickly. There is no
    clip rate.

Other implementations
    The official code and TRL agree on values. TRL uses new / old times the engine's ratio, and
    rejects its own default correction with this loss. The defaults in the official docstring differ
    from those in the code. Both clamp log W, which the kernel bounds anyway.

Do not combine with
    A correction or another bound: W is already relative to the sampler, and the kernel is the trust
    region.

Source
    arXiv 2602.10693.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig


class Vespo(LossConfig):
    """VESPO: a soft kernel of the whole response's importance weight."""

    anchored_on_sampler: ClassVar[bool] = True

    kind: Literal["vespo"] = "vespo"
    aggregation: Aggregation = "token-mean"
    power_positive: float = Field(2.0, ge=0, le=20)
    """k for A >= 0: suppresses responses that became unlikely."""
    decay_positive: float = Field(3.0, gt=0, le=20)
    """Lambda for A >= 0: suppresses responses that became likely."""
    power_negative: float = Field(3.0, ge=0, le=20)
    """k for A < 0."""
    decay_negative: float = Field(2.0, gt=0, le=20)
    """Lambda for A < 0."""


def vespo(inputs: LossInputs[Vespo]) -> LossTerms:
    """REINFORCE weighted by a kernel of the response's importance weight."""
    import torch

    settings, negative_BT = inputs.settings, inputs.advantages_BT < 0
    log_weight_B1 = inputs.log_ratio_to_sampler().detach().sum(dim=1, keepdim=True)
    power_BT = torch.where(negative_BT, settings.power_negative, settings.power_positive)
    decay_BT = torch.where(negative_BT, settings.decay_negative, settings.decay_positive)
    gate_BT = torch.exp(power_BT * log_weight_B1 - decay_BT * torch.expm1(log_weight_B1))
    loss_BT = -gate_BT * inputs.advantages_BT * inputs.masked_logprobs()
    return LossTerms(loss_BT, gate_BT=gate_BT)
