"""DPPO with the total variation of token against rest: the divergence decides, not the ratio.

Formula
    -M r A per token, r = new / sampler. M is 0 where the token moves further away, that is A > 0
    and r > 1, or A < 0 and r < 1, while |sampler - new| of its probability exceeds
    divergence_limit; else 1. M has no gradient. With ratio_cap the gradient's weight r is bounded.

Denominator
    token-mean; the paper leaves it to the recipe.

Settings
    divergence_limit 0.15 (0.2 in the scaling runs), ratio_cap off (5 in the scaling runs). The
    advantage without a standard deviation.

Moves
    clip/low_rate and clip/high_rate, the share of masked tokens on either side, stay small; rare
    tokens are no longer clipped for a large ratio of tiny probabilities.

Elsewhere
    verl multiplies -A log new by min(r, cap), whose gradient is the same, and is right only while
    the sampler's log-probabilities stand for the old ones. prime-rl adds a squared log-ratio. TRL
    has removed its own.

Not with
    Any correction, or PPO's clip: the ratio goes to the sampler. Anchored on recomputed old
    log-probabilities instead it collapses in the paper.

Source
    arXiv 2602.04879.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, masked_surrogate
from grpodoctor.trainer.config.loss_settings import DppoBinaryTv


def dppo_binary_tv(inputs: LossInputs[DppoBinaryTv]) -> LossTerms:
    """-r A to the sampler, without the tokens beyond a total variation that move further away."""
    settings = inputs.settings
    new_BT = torch.exp(inputs.new_logprobs_BT.detach())
    variation_BT = (torch.exp(inputs.sampler_logprobs_BT) - new_BT).abs()
    return masked_surrogate(inputs, variation_BT > settings.divergence_limit, settings.ratio_cap)
