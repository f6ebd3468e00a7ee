"""MiniRL: REINFORCE weighted by the ratio to the sampler, with PPO's mask on the ratio to old.

Formula
    -M sg[min(new / sampler, ratio_cap)] A log new per token, sg = stop gradient. M is 0 where PPO
    stops the gradient: A > 0 and new / old > 1 + clip_high, or A < 0 and new / old < 1 - clip_low.

Denominator
    sequence-mean-token-sum: no length normalization.

Settings
    clip_low 0.2, clip_high 0.27, ratio_cap 5, with the advantage `centred`. The paper can be read
    as capping only the engine's part of the ratio; here the whole ratio is capped.

Effect on metrics
    clip/low_rate and clip/high_rate count masked tokens.

Other implementations
    No library has it under this name.

Do not combine with
    A correction: the weight already contains old / sampler.

Source
    arXiv 2512.01374.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig


class MiniRl(LossConfig):
    """MiniRL: PPO's mask, and one weight for both staleness and engine mismatch."""

    anchored_on_sampler: ClassVar[bool] = True

    kind: Literal["minirl"] = "minirl"
    aggregation: Aggregation = "sequence-mean-token-sum"
    clip_low: float = Field(0.2, ge=0, le=1)
    """A token with A < 0 is masked if learner / old is below 1 - clip_low."""
    clip_high: float = Field(0.27, ge=0, le=10)
    """A token with A > 0 is masked if learner / old is above 1 + clip_high."""
    ratio_cap: float = Field(5.0, ge=1, le=100)
    """Largest weight learner / sampler."""


def minirl(inputs: LossInputs[MiniRl]) -> LossTerms:
    """REINFORCE with a truncated weight to the sampler, on the tokens that PPO does not clip."""
    settings, advantages_BT = inputs.settings, inputs.advantages_BT
    weight_BT = inputs.log_ratio_to_sampler().detach().exp().clamp(max=settings.ratio_cap)
    ratio_BT = inputs.log_ratio().detach().exp()
    low_BT, high_BT = clip_flags(
        ratio_BT, advantages_BT, 1 - settings.clip_low, 1 + settings.clip_high
    )
    loss_BT = -weight_BT * advantages_BT * inputs.masked_logprobs()
    return LossTerms(loss_BT.where(~(low_BT | high_BT), 0.0), low_BT, high_BT)
