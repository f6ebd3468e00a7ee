"""DPPO with the KL divergence over the sampler's likeliest tokens.

Formula
    As dppo_topk_tv, with the divergence KL(sampler, new) of the same coarse distributions: the sum
    over the top_tokens likeliest tokens of the sampler, the sampled token and all others as one
    outcome of p log(p / q), p the sampler's probability and q the learner's.

Denominator
    token-mean; the paper leaves it to the recipe.

Settings
    top_tokens 20, divergence_limit 0.05 nats, ratio_cap off.

Moves
    What dppo_binary_kl moves. The authors found no gain over the binary form: prefer that.

Elsewhere
    TRL had it as an experiment and has removed it.

Not with
    Any correction, or PPO's clip, as dppo_binary_tv.

Source
    arXiv 2602.04879.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import (
    LossInputs,
    LossTerms,
    coarsened,
    masked_surrogate,
)
from grpodoctor.trainer.config.loss_settings import DppoTopkKl


def dppo_topk_kl(inputs: LossInputs[DppoTopkKl]) -> LossTerms:
    """-r A to the sampler, without the tokens beyond a coarse KL that move further away."""
    settings = inputs.settings
    sampler_BTS, new_BTS = coarsened(inputs)
    # p log p - p log q, which is 0 where the sampler's p is, whatever the learner's q.
    divergence_BTS = torch.xlogy(sampler_BTS, sampler_BTS) - torch.xlogy(sampler_BTS, new_BTS)
    divergence_BT = divergence_BTS.sum(dim=-1)
    return masked_surrogate(inputs, divergence_BT > settings.divergence_limit, settings.ratio_cap)
