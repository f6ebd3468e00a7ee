"""PPO's clip on the whole response's ratio, the product over its tokens: RLOO as TRL runs it.

Formula
    s = exp(sum over the response's tokens of log(new / old));
    max(-s A, -clip(s, 1 - clip_low, 1 + clip_high) A), one term a response. Unlike the ratio of
    gspo this is the importance weight of the response, and it compounds with length.

Denominator
    sequence-mean, and no other: the response's term is given to each of its tokens.

Settings
    clip_low 0.2, clip_high 0.2. With many tokens and several updates per batch nearly every
    response leaves such bounds: use one update, where the loss is RLOO itself.

Moves
    clip/low_rate and clip/high_rate, of responses; near 1 after the first update of a batch.

Elsewhere
    TRL's RLOOTrainer, which besides subtracts 0.05 times the sum of k1 from the reward and has two
    responses per prompt. RLOO's own paper has no ratio: that is the loss reinforce with the
    leave_one_out advantage.

Not with
    Corrections that weigh single tokens, as in gspo; a second clip of the same ratio.

Source
    PPO, arXiv 1707.06347, with a response as the action; RLOO, arXiv 2402.14740.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.config.loss_settings import SequenceClip

_LARGEST = 80.0
"""Logarithm of a ratio whose exponential is still a float32: an infinity times the zero gradient of
a clipped response would not be zero."""


def sequence_clip(inputs: LossInputs[SequenceClip]) -> LossTerms:
    """PPO's clip on the product of a response's ratios."""
    low, high = 1 - inputs.settings.clip_low, 1 + inputs.settings.clip_high
    log_ratio_B1 = inputs.log_ratio().sum(dim=1, keepdim=True)
    ratio_B1, advantages_BT = torch.exp(log_ratio_B1.clamp(max=_LARGEST)), inputs.advantages_BT
    loss_BT = torch.maximum(-ratio_B1 * advantages_BT, -ratio_B1.clamp(low, high) * advantages_BT)
    # The advantage is the response's own; padding may hold anything, its first token does not.
    return LossTerms(loss_BT, *clip_flags(ratio_B1, advantages_BT[:, :1], low, high))
