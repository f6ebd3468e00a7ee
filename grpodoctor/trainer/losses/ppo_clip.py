"""PPO's clipped surrogate: GRPO, DAPO and Dr. GRPO differ from it in settings alone."""

from __future__ import annotations

import torch

from grpodoctor.trainer.losses.base import LossInputs, LossTerms


def ppo_clip(inputs: LossInputs) -> LossTerms:
    """max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A) per token, r = new / old.

    Two corners stay live: a token with A > 0 whose ratio fell and one with A < 0 whose ratio rose.
    With `dual_clip` = c the latter is bounded too: for A < 0 the loss is at most -c A.

    Source: arXiv 1707.06347; clip-higher: arXiv 2503.14476, section 3.1; dual clip: arXiv
    1912.09729, Eq. 5.
    """
    settings, advantages_BT = inputs.settings, inputs.advantages_BT
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    ratio_BT = torch.exp(inputs.new_logprobs_BT - inputs.old_logprobs_BT)
    loss_BT = torch.maximum(-ratio_BT * advantages_BT, -ratio_BT.clamp(low, high) * advantages_BT)
    if settings.dual_clip is not None:
        ceiling_BT = torch.where(advantages_BT < 0, -settings.dual_clip * advantages_BT, torch.inf)
        loss_BT = torch.minimum(loss_BT, ceiling_BT)
    return LossTerms(
        loss_BT,
        clipped_low_BT=(advantages_BT < 0) & (ratio_BT < low) & inputs.mask_BT,
        clipped_high_BT=(advantages_BT > 0) & (ratio_BT > high) & inputs.mask_BT,
    )
