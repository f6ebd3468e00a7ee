"""DPPO with the binary KL divergence: masks tokens by divergence instead of by ratio.

Formula
    As dppo_binary_tv, with the divergence p log(p / q) + (1 - p) log((1 - p) / (1 - q)), where p is
    the sampler's and q the learner's probability of the token. This is KL(sampler, learner) over
    two outcomes: this token or any other.

Denominator
    token-mean; the paper leaves it to the recipe.

Settings
    divergence_limit 0.05 nats, ratio_cap off.

Effect on metrics
    As dppo_binary_tv; it masks more of the likely tokens.

Other implementations
    verl's dppo_kl, with the same cap as dppo_binary_tv. A common mistake is to omit the second term
    of the divergence.

Do not combine with
    A correction or PPO's clip, as for dppo_binary_tv.

Source
    arXiv 2602.04879.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.divergence._shared import (
    DivergenceConfig,
    masked_surrogate,
)

if TYPE_CHECKING:
    from torch import Tensor


class DppoBinaryKl(DivergenceConfig):
    """DPPO with the binary KL divergence."""

    kind: Literal["dppo_binary_kl"] = "dppo_binary_kl"
    divergence_limit: float = Field(0.05, gt=0, le=10)
    """KL divergence, in nats, above which a token may not move further away."""


def dppo_binary_kl(inputs: LossInputs[DppoBinaryKl]) -> LossTerms:
    """-r A, without the tokens beyond a binary KL divergence that move further away."""
    sampler_BT, new_BT = inputs.sampler_logprobs_BT, inputs.new_logprobs_BT.detach()
    other_BT = _log_complement(sampler_BT)
    divergence_BT = sampler_BT.exp() * (sampler_BT - new_BT)
    divergence_BT = divergence_BT + other_BT.exp() * (other_BT - _log_complement(new_BT))
    return masked_surrogate(inputs, divergence_BT > inputs.settings.divergence_limit)


def _log_complement(logprobs_BT: Tensor) -> Tensor:
    """log(1 - p), bounded below by the dtype's precision if p rounds to 1."""
    import torch

    smallest = torch.finfo(logprobs_BT.dtype).eps
    return (-logprobs_BT.clamp(max=-smallest).expm1()).log()
