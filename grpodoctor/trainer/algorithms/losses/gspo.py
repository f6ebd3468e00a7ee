"""GSPO: ratio, clip and reward at one level, the response's.

Formula
    s = exp(mean over the response's tokens of log(new / old));
    max(-s A, -clip(s, 1 - clip_low, 1 + clip_high) A), one term a response. Its gradient is shared
    evenly by the response's tokens.

Denominator
    sequence-mean, and no other: the response's term is given to each of its tokens, whose mean it
    then is. Weighing by tokens instead would count long responses more than the paper does.

Settings
    clip_low 3e-4, clip_high 4e-4: the geometric mean of many ratios is close to 1. A width that
    fits single tokens, such as 0.2, never clips.

Moves
    clip/low_rate and clip/high_rate, of responses, far above those of a token clip, by about two
    orders of magnitude in the paper; experts/churn_update matters less.

Elsewhere
    verl computes the form of gspo_token, which is the same for one advantage a response. TRL needs
    loss_type="grpo" beside importance_sampling_level="sequence". AReaL weighs by tokens. OpenRLHF
    takes the sampler for the old policy once a correction is on.

Not with
    Corrections that weigh single tokens: a response has one term here (use gspo_token, or a
    correction of whole responses, which acts on another ratio). GMPO and SAPO bound the same ratio.
    The length-normalised ratio is not the importance weight of the response.

Source
    arXiv 2507.18071, section 4.1.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.config.loss_settings import Gspo


def gspo(inputs: LossInputs[Gspo]) -> LossTerms:
    """PPO's clip on the geometric mean of a response's ratios."""
    low, high = 1 - inputs.settings.clip_low, 1 + inputs.settings.clip_high
    ratio_B1 = torch.exp(inputs.response_mean(inputs.log_ratio()))
    advantages_BT = inputs.advantages_BT
    loss_BT = torch.maximum(-ratio_B1 * advantages_BT, -ratio_B1.clamp(low, high) * advantages_BT)
    # The advantage is the response's own; padding may hold anything, its first token does not.
    return LossTerms(loss_BT, *clip_flags(ratio_B1, advantages_BT[:, :1], low, high))
