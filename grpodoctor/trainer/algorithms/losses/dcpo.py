"""DCPO's dynamic clip: unlikely tokens may move further.

Formula
    PPO's clip, with bounds that depend on q, the old probability of the token:
    0.5 + sqrt(max(1 - 4 clip_low / q, 0)) / 2 <= r <= 0.5 + sqrt(1 + 4 clip_high / q) / 2, the
    upper one at most ratio_cap.

Denominator
    sequence-sum-token-mean: the sum over responses of their token means, not divided by their
    number, as the paper writes it. The loss grows with the batch: tune the learning rate.

Settings
    clip_low 0.16, clip_high 0.2, ratio_cap 10.

Moves
    clip/low_rate and clip/high_rate about ten times below PPO's.

Elsewhere
    The official code takes the mean over all tokens of a micro-batch, the paper's denominator only
    where a micro-batch is one response. The smoothing of advantages over visits of a prompt, the
    paper's other half, is the advantage dcpo_sas.

Not with
    Clip-higher or any other clip of the same ratio.

Source
    arXiv 2509.02333.
"""

from __future__ import annotations

import torch

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.config.loss_settings import Dcpo


def dcpo(inputs: LossInputs[Dcpo]) -> LossTerms:
    """PPO's clip with bounds that widen as the old probability falls."""
    settings, advantages_BT = inputs.settings, inputs.advantages_BT
    inverse_BT = torch.exp(-inputs.old_logprobs_BT)
    low_BT = 0.5 + (1 - 4 * settings.clip_low * inverse_BT).clamp(min=0).sqrt() / 2
    high_BT = 0.5 + (1 + 4 * settings.clip_high * inverse_BT).sqrt() / 2
    high_BT = high_BT.clamp(max=settings.ratio_cap)
    ratio_BT = torch.exp(inputs.log_ratio())
    clipped_BT = torch.minimum(torch.maximum(ratio_BT, low_BT), high_BT)
    loss_BT = torch.maximum(-ratio_BT * advantages_BT, -clipped_BT * advantages_BT)
    return LossTerms(loss_BT, *clip_flags(ratio_BT, advantages_BT, low_BT, high_BT))
