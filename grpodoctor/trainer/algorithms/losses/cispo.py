"""CISPO: the importance weight is clipped and not the update, so every token keeps a gradient.

Formula
    -sg[clip(r, 1 - clip_low, 1 + clip_high)] A log new per token, r = new / old, sg a stopped
    gradient.

Denominator
    token-mean: of all tokens of the step.

Settings
    clip_low 1 (no lower bound, as MiniMax-M1 runs it), clip_high 4, a weight of at most 5. The
    paper does not publish its own clip_high; 4 to 8 make no difference in ScaleRL.

Moves
    clip/high_rate, here the share whose weight is bounded, stays small; entropy/mean stays above
    that of a hard clip.

Elsewhere
    TRL's epsilon_high is the largest weight itself, 5 for our 4, and its rate counts A > 0 alone
    though the bound holds for both signs. verl's example sets clip_high 0.2 and open-instruct
    0.272: hardly any room off-policy.

Not with
    A second clip of the same ratio: the loss replaces PPO's and clip-higher.

Source
    MiniMax-M1, arXiv 2506.13585.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.config.loss_settings import Cispo


def cispo(inputs: LossInputs[Cispo]) -> LossTerms:
    """REINFORCE with a bounded importance weight; the flags say where the bound holds."""
    low, high = 1 - inputs.settings.clip_low, 1 + inputs.settings.clip_high
    ratio_BT = torch.exp(inputs.log_ratio().detach())
    logprobs_BT = torch.where(inputs.mask_BT, inputs.new_logprobs_BT, 0.0)
    return LossTerms(
        -ratio_BT.clamp(low, high) * inputs.advantages_BT * logprobs_BT,
        ratio_BT < low,
        ratio_BT > high,
    )
