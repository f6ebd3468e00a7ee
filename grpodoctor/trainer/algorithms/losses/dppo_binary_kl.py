"""DPPO with the KL divergence of token against rest: the divergence decides, not the ratio.

Formula
    As dppo_binary_tv, with the divergence p log(p / q) + (1 - p) log((1 - p) / (1 - q)), p the
    sampler's probability of the token and q the learner's: KL(sampler, learner) of the question
    whether it is this token.

Denominator
    token-mean; the paper leaves it to the recipe.

Settings
    divergence_limit 0.05 nats, ratio_cap off.

Moves
    What dppo_binary_tv moves; it forbids more among the likely tokens.

Elsewhere
    verl's dppo_kl, with the cap of dppo_binary_tv. Leaving out the second term of the divergence
    is a common slip.

Not with
    Any correction, or PPO's clip, as dppo_binary_tv.

Source
    arXiv 2602.04879.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, masked_surrogate
from grpodoctor.trainer.config.loss_settings import DppoBinaryKl


def dppo_binary_kl(inputs: LossInputs[DppoBinaryKl]) -> LossTerms:
    """-r A to the sampler, without the tokens beyond a binary KL that move further away."""
    settings = inputs.settings
    sampler_BT, new_BT = inputs.sampler_logprobs_BT, inputs.new_logprobs_BT.detach()
    other_BT = _log_complement(sampler_BT)
    divergence_BT = torch.exp(sampler_BT) * (sampler_BT - new_BT)
    divergence_BT = divergence_BT + torch.exp(other_BT) * (other_BT - _log_complement(new_BT))
    return masked_surrogate(inputs, divergence_BT > settings.divergence_limit, settings.ratio_cap)


def _log_complement(logprobs_BT: Tensor) -> Tensor:
    """log(1 - p). A p that rounds to 1 leaves the smallest rest that its precision knows."""
    smallest = torch.finfo(logprobs_BT.dtype).eps
    return torch.log(-torch.expm1(logprobs_BT.clamp(max=-smallest)))
