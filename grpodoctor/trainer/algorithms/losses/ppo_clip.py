"""PPO's clipped surrogate: GRPO, DAPO, Dr. GRPO and LitePPO differ from it in settings alone.

Formula
    max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A) per token, r = new / old. Two corners stay
    live: a token with A > 0 whose ratio fell, and one with A < 0 whose ratio rose. With
    `dual_clip` = c the latter is bounded too: for A < 0 the loss is at most -c A.

Denominator
    Any. GRPO: sequence-mean. DAPO: token-mean, or to the letter of its Eq. 8 prompt-mean.
    Dr. GRPO: constant.

Settings
    clip_low 0.2, clip_high 0.2 (DAPO 0.28, Olmo 3 0.272), dual_clip off (3 where it is used).
    INTELLECT-2's two-sided clip, with delta 4, is dual_clip = delta for any delta above
    1 + clip_high.

Moves
    clip/low_rate and clip/high_rate above zero once a batch serves several updates; a wider
    clip_high keeps entropy/mean from collapsing.

Elsewhere
    verl always clips a second time, at 3, and takes token-mean unless told otherwise; TRL's
    default is token-mean with the name dapo. Neither default is the GRPO of its paper. TRL's
    delta is INTELLECT-2's.
    TRL also multiplies its KL penalty by the ratio unless use_bias_correction_kl is off.

Not with
    Any other bound on the same ratio: they are losses of their own here.

Source
    PPO, arXiv 1707.06347; GRPO, arXiv 2402.03300; clip-higher, arXiv 2503.14476, section 3.1;
    dual clip, arXiv 1912.09729, Eq. 5; two-sided clip, INTELLECT-2, arXiv 2505.07291.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.config.loss_settings import PpoClip


def ppo_clip(inputs: LossInputs[PpoClip]) -> LossTerms:
    """PPO's clip per token, with a second one for A < 0 where the settings ask for it."""
    settings, advantages_BT = inputs.settings, inputs.advantages_BT
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    ratio_BT = torch.exp(inputs.log_ratio())
    loss_BT = torch.maximum(-ratio_BT * advantages_BT, -ratio_BT.clamp(low, high) * advantages_BT)
    if settings.dual_clip is not None:
        ceiling_BT = torch.where(advantages_BT < 0, -settings.dual_clip * advantages_BT, torch.inf)
        loss_BT = torch.minimum(loss_BT, ceiling_BT)
    return LossTerms(loss_BT, *clip_flags(ratio_BT, advantages_BT, low, high))
