"""MiniRL: REINFORCE with the whole ratio to the sampler as weight, and PPO's mask to the old.

Formula
    -M sg[min(new / sampler, ratio_cap)] A log new per token, sg a stopped gradient. M is 0 where
    PPO would stop the token: A > 0 and new / old > 1 + clip_high, or A < 0 and
    new / old < 1 - clip_low.

Denominator
    sequence-mean-token-sum: no length normalisation.

Settings
    clip_low 0.2, clip_high 0.27, ratio_cap 5, with the centred advantage. The paper can be read as
    capping the engine's share of the ratio alone; here the whole ratio is capped.

Moves
    clip/low_rate and clip/high_rate, of masked tokens.

Elsewhere
    No library has it by name.

Not with
    Any correction: the weight contains old / sampler already.

Source
    arXiv 2512.01374.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.config.loss_settings import MiniRl


def minirl(inputs: LossInputs[MiniRl]) -> LossTerms:
    """REINFORCE with a truncated weight to the sampler, on the tokens that PPO leaves live."""
    settings, advantages_BT = inputs.settings, inputs.advantages_BT
    weight_BT = torch.exp(inputs.log_ratio_to_sampler().detach()).clamp(max=settings.ratio_cap)
    ratio_BT = torch.exp(inputs.log_ratio().detach())
    low_BT, high_BT = clip_flags(
        ratio_BT, advantages_BT, 1 - settings.clip_low, 1 + settings.clip_high
    )
    logprobs_BT = torch.where(inputs.mask_BT, inputs.new_logprobs_BT, 0.0)
    loss_BT = -weight_BT * advantages_BT * logprobs_BT
    return LossTerms(torch.where(low_BT | high_BT, 0.0, loss_BT), low_BT, high_BT)
