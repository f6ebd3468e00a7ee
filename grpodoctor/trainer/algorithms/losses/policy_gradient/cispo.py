"""CISPO: clips the importance weight instead of the update, so every token keeps a gradient.

Formula
    -sg[clip(r, 1 - clip_low, 1 + clip_high)] A log new per token, r = new / old, sg = stop
    gradient.

Denominator
    token-mean: all tokens of the step.

Settings
    clip_low 1 (no lower bound, as in MiniMax-M1), clip_high 4 (largest weight 5). The paper does
    not publish its clip_high; ScaleRL found no difference between 4 and 8.

Effect on metrics
    clip/high_rate, here the fraction of tokens whose weight is bounded, stays small. entropy/mean
    stays above that of a hard clip.

Other implementations
    TRL's epsilon_high is the largest weight itself (5 for our 4). Its clip rate counts only A > 0,
    although the bound applies to both signs. verl's example sets clip_high 0.2 and open-instruct
    0.272, which leave almost no room for off-policy tokens.

Do not combine with
    A second clip of the same ratio: this loss replaces PPO's clip and clip-higher.

Source
    MiniMax-M1, arXiv 2506.13585.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig


class Cispo(LossConfig):
    """CISPO: a clipped importance weight."""

    kind: Literal["cispo"] = "cispo"
    aggregation: Aggregation = "token-mean"
    clip_low: float = Field(1.0, ge=0, le=1)
    """The weight is at least 1 - clip_low; 1 means no lower bound."""
    clip_high: float = Field(4.0, ge=0, le=100)
    """The weight is at most 1 + clip_high."""


def cispo(inputs: LossInputs[Cispo]) -> LossTerms:
    """REINFORCE with a bounded importance weight; the flags mark bounded weights."""
    low, high = 1 - inputs.settings.clip_low, 1 + inputs.settings.clip_high
    ratio_BT = inputs.log_ratio().detach().exp()
    loss_BT = -ratio_BT.clamp(low, high) * inputs.advantages_BT * inputs.masked_logprobs()
    return LossTerms(loss_BT, ratio_BT < low, ratio_BT > high)
