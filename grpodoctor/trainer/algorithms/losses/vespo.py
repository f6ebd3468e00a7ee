"""VESPO: a soft kernel of the importance weight of the whole response.

Formula
    -sg[phi(W)] A log new per token, W the product over the response's tokens of new / sampler,
    phi(W) = W^k exp(lambda (1 - W)), k and lambda by the sign of A, sg a stopped gradient.
    phi(1) = 1; W^k fades responses that became unlikely, the exponential those that became likely.

Denominator
    token-mean.

Settings
    power_positive 2, decay_positive 3 where A >= 0; power_negative 3, decay_negative 2 elsewhere.

Moves
    clip/gate_mean, the mean of phi. The product compounds with length, so phi falls fast: there is
    no clip rate.

Elsewhere
    The official code and TRL agree on values; TRL takes new / old and folds the engine's ratio in,
    and refuses its own default correction beside it. The official docstring names other
    defaults than the code has. Both clamp log W, which the kernel bounds anyway.

Not with
    Any correction, or another bound: W goes to the sampler, and the kernel is the trust region.

Source
    arXiv 2602.10693.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.config.loss_settings import Vespo


def vespo(inputs: LossInputs[Vespo]) -> LossTerms:
    """REINFORCE weighed by a kernel of the response's importance weight."""
    settings, advantages_BT = inputs.settings, inputs.advantages_BT
    log_weight_B1 = inputs.log_ratio_to_sampler().detach().sum(dim=1, keepdim=True)
    power_BT = torch.where(advantages_BT < 0, settings.power_negative, settings.power_positive)
    decay_BT = torch.where(advantages_BT < 0, settings.decay_negative, settings.decay_positive)
    gate_BT = torch.exp(power_BT * log_weight_B1 - decay_BT * torch.expm1(log_weight_B1))
    logprobs_BT = torch.where(inputs.mask_BT, inputs.new_logprobs_BT, 0.0)
    return LossTerms(-gate_BT * advantages_BT * logprobs_BT, gate_BT=gate_BT)
