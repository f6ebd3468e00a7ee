"""ScaleRL's loss: CISPO anchored on the sampler, which corrects engine mismatch and staleness.

Formula
    -sg[min(new / sampler, ratio_cap)] A log new per token, sg = stop gradient.

Denominator
    prompt-mean: the mean over prompts of the mean over each prompt's tokens.

Settings
    ratio_cap 5; the paper found no difference between 4, 5 and 8. Used with the advantage scalerl,
    rollout.filter_groups and float32 logits.

Effect on metrics
    clip/high_rate, here the fraction of tokens whose weight is bounded, stays small.

Other implementations
    No library has it under this name. SkyRL's cispo is closest: it is anchored on the sampler and
    takes the mean over prompts. TRL's cispo with scale_rewards="batch" divides by the standard
    deviation of raw rewards and takes the mean over tokens.

Do not combine with
    A correction: the ratio is already relative to the sampler, so a second weight would correct the
    same gap twice.

Source
    arXiv 2510.13786.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig


class ScaleRl(LossConfig):
    """ScaleRL's CISPO, anchored on the sampler."""

    anchored_on_sampler: ClassVar[bool] = True

    kind: Literal["scalerl"] = "scalerl"
    aggregation: Aggregation = "prompt-mean"
    ratio_cap: float = Field(5.0, ge=1, le=100)
    """Largest weight."""


def scalerl(inputs: LossInputs[ScaleRl]) -> LossTerms:
    """REINFORCE with a truncated importance weight to the sampler."""
    cap = inputs.settings.ratio_cap
    ratio_BT = inputs.log_ratio_to_sampler().detach().exp()
    loss_BT = -ratio_BT.clamp(max=cap) * inputs.advantages_BT * inputs.masked_logprobs()
    capped_BT = ratio_BT > cap
    return LossTerms(loss_BT, capped_BT.new_zeros(capped_BT.shape), capped_BT)
