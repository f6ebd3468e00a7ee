"""DCPO's dynamic clip: unlikely tokens may move further.

Formula
    PPO's clip, with bounds that depend on q, the token's probability under the old policy:
    0.5 + sqrt(max(1 - 4 clip_low / q, 0)) / 2 <= r <= 0.5 + sqrt(1 + 4 clip_high / q) / 2, with the
    upper bound at most ratio_cap.

Denominator
    sequence-sum-token-mean: the sum over responses of their token means, not divided by the number
    of responses, as in the paper. The loss grows with the batch; tune the learning rate.

Settings
    clip_low 0.16, clip_high 0.2, ratio_cap 10.

Effect on metrics
    clip/low_rate and clip/high_rate are about ten times lower than PPO's.

Other implementations
    The official code takes the mean over all tokens of a micro-batch, which is the paper's
    denominator only if a micro-batch is one response. The other half of the paper, smoothing
    advantages over visits of a prompt, is the advantage dcpo_sas.

Do not combine with
    Clip-higher or another clip of the same ratio.

Source
    arXiv 2509.02333.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig


class Dcpo(LossConfig):
    """DCPO: a clip whose width depends on the token's probability."""

    kind: Literal["dcpo"] = "dcpo"
    aggregation: Aggregation = "sequence-sum-token-mean"
    clip_low: float = Field(0.16, ge=0, le=1)
    """Lower width; the bound is wider for unlikely tokens."""
    clip_high: float = Field(0.2, ge=0, le=10)
    """Upper width; the bound is wider for unlikely tokens."""
    ratio_cap: float = Field(10.0, gt=1, le=1000)
    """Largest upper bound."""


def dcpo(inputs: LossInputs[Dcpo]) -> LossTerms:
    """PPO's clip with bounds that widen as the old probability falls."""
    settings, advantages_BT = inputs.settings, inputs.advantages_BT
    inverse_BT = (-inputs.old_logprobs_BT).exp()
    low_BT = 0.5 + (1 - 4 * settings.clip_low * inverse_BT).clamp(min=0).sqrt() / 2
    high_BT = 0.5 + (1 + 4 * settings.clip_high * inverse_BT).sqrt() / 2
    high_BT = high_BT.clamp(max=settings.ratio_cap)
    ratio_BT = inputs.log_ratio().exp()
    clipped_BT = ratio_BT.maximum(low_BT).minimum(high_BT)
    loss_BT = (-ratio_BT * advantages_BT).maximum(-clipped_BT * advantages_BT)
    return LossTerms(loss_BT, *clip_flags(ratio_BT, advantages_BT, low_BT, high_BT))
