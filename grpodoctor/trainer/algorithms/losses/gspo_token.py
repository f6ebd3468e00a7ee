"""GSPO-token: GSPO's ratio and clip, with a gradient and an advantage for each token.

Formula
    s_t = sg[s] new / sg[new], s as in gspo and sg a stopped gradient;
    max(-s_t A_t, -clip(s_t, 1 - clip_low, 1 + clip_high) A_t). In value and gradient it equals
    gspo where all tokens of a response have one advantage.

Denominator
    sequence-mean, and no other, as in gspo.

Settings
    clip_low 3e-4, clip_high 4e-4.

Moves
    What gspo moves; clip rates are of tokens, which within a response agree.

Elsewhere
    verl's gspo is this form, with the log-ratio clamped at 10; TRL has it as an experiment.

Not with
    GMPO and SAPO, which bound the same ratio. Token corrections do fit here.

Source
    arXiv 2507.18071, section 4.3.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.config.loss_settings import GspoToken


def gspo_token(inputs: LossInputs[GspoToken]) -> LossTerms:
    """PPO's clip per token on the geometric mean of the response's ratios."""
    low, high = 1 - inputs.settings.clip_low, 1 + inputs.settings.clip_high
    log_ratio_BT, advantages_BT = inputs.log_ratio(), inputs.advantages_BT
    shared_B1 = inputs.response_mean(log_ratio_BT).detach()
    ratio_BT = torch.exp(shared_B1 + log_ratio_BT - log_ratio_BT.detach())
    loss_BT = torch.maximum(-ratio_BT * advantages_BT, -ratio_BT.clamp(low, high) * advantages_BT)
    return LossTerms(loss_BT, *clip_flags(ratio_BT, advantages_BT, low, high))
