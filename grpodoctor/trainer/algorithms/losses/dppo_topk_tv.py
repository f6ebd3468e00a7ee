"""DPPO with the total variation over the sampler's likeliest tokens.

Formula
    As dppo_binary_tv, with the divergence of a coarser distribution: the top_tokens likeliest
    tokens of the sampler, the sampled token, and all others as one outcome. Half the sum of
    |sampler - new| over these outcomes: no less than the binary, no more than the full variation.

Denominator
    token-mean; the paper leaves it to the recipe.

Settings
    top_tokens 20, divergence_limit 0.15, ratio_cap off.

Moves
    What dppo_binary_tv moves. The authors found no gain over the binary form, which needs nothing
    of the sampler but the log-probability of its token: prefer that.

Elsewhere
    TRL had it as an experiment and has removed it. It is not "the largest contributions to the
    divergence": the set is the sampler's, whatever the learner thinks.

Not with
    Any correction, or PPO's clip, as dppo_binary_tv.

Source
    arXiv 2602.04879.
"""

from __future__ import annotations

from grpodoctor.trainer.algorithms.losses.base import (
    LossInputs,
    LossTerms,
    coarsened,
    masked_surrogate,
)
from grpodoctor.trainer.config.loss_settings import DppoTopkTv


def dppo_topk_tv(inputs: LossInputs[DppoTopkTv]) -> LossTerms:
    """-r A to the sampler, without the tokens beyond a coarse variation that move further away."""
    settings = inputs.settings
    sampler_BTS, new_BTS = coarsened(inputs)
    variation_BT = (sampler_BTS - new_BTS).abs().sum(dim=-1) / 2
    return masked_surrogate(inputs, variation_BT > settings.divergence_limit, settings.ratio_cap)
