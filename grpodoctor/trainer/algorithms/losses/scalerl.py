"""ScaleRL's loss: CISPO with the sampler as anchor, which corrects engine and staleness at once.

Formula
    -sg[min(new / sampler, ratio_cap)] A log new per token, sg a stopped gradient.

Denominator
    prompt-mean: of prompts, each the mean of its tokens.

Settings
    ratio_cap 5; 4, 5 and 8 make no difference in the paper. With the scalerl advantage, groups
    without variance dropped, and logits in float32.

Moves
    clip/high_rate, here the share whose weight is bounded, stays small.

Elsewhere
    No library has it under its name. SkyRL's cispo comes closest, anchored on the rollout with a
    mean over prompts; TRL's cispo with scale_rewards="batch" divides by the deviation of raw
    rewards and takes the mean over tokens.

Not with
    Any correction: the ratio goes to the sampler already, a second weight would count the gap
    twice.

Source
    arXiv 2510.13786.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.config.loss_settings import ScaleRl


def scalerl(inputs: LossInputs[ScaleRl]) -> LossTerms:
    """REINFORCE with a truncated importance weight to the sampler."""
    cap = inputs.settings.ratio_cap
    ratio_BT = torch.exp(inputs.log_ratio_to_sampler().detach())
    logprobs_BT = torch.where(inputs.mask_BT, inputs.new_logprobs_BT, 0.0)
    capped_BT = ratio_BT > cap
    return LossTerms(
        -ratio_BT.clamp(max=cap) * inputs.advantages_BT * logprobs_BT,
        torch.zeros_like(capped_BT),
        capped_BT,
    )
