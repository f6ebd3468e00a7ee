"""PPO's clipped surrogate; GRPO, DAPO, Dr. GRPO and LitePPO differ only in their settings.

Formula
    max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A) per token, r = new / old. Two cases are not
    clipped: a token with A > 0 whose ratio fell, and a token with A < 0 whose ratio rose. With
    `dual_clip` = c the second case is bounded too: for A < 0 the loss is at most -c A.

Denominator
    Any. GRPO: sequence-mean. DAPO: token-mean, or prompt-mean following its Eq. 8 literally.
    Dr. GRPO: constant.

Settings
    clip_low 0.2, clip_high 0.2 (DAPO 0.28, Olmo 3 0.272), dual_clip off (3 where it is used).
    INTELLECT-2's two-sided clip, with delta 4, is dual_clip = delta for any delta above
    1 + clip_high.

Effect on metrics
    clip/low_rate and clip/high_rate are above zero if a batch is used for several updates. A larger
    clip_high keeps entropy/mean from collapsing.

Other implementations
    verl always applies the dual clip, at 3, and defaults to token-mean. TRL defaults to token-mean,
    under the name dapo. Neither default is the GRPO of the paper. TRL's delta is INTELLECT-2's. TRL
    also multiplies its KL penalty by the ratio unless use_bias_correction_kl is off.

Do not combine with
    Another bound on the same ratio; such bounds are separate losses here.

Source
    PPO, arXiv 1707.06347; GRPO, arXiv 2402.03300; clip-higher, arXiv 2503.14476, section 3.1;
    dual clip, arXiv 1912.09729, Eq. 5; two-sided clip, INTELLECT-2, arXiv 2505.07291.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import (
    LossInputs,
    LossTerms,
    clip_flags,
    clipped_surrogate,
)
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig


class PpoClip(LossConfig):
    """PPO's clip: GRPO, DAPO, Dr. GRPO, LitePPO."""

    kind: Literal["ppo_clip"] = "ppo_clip"
    aggregation: Aggregation = "sequence-mean"
    clip_low: float = Field(0.2, ge=0, le=1)
    """The ratio may fall to 1 - clip_low."""
    clip_high: float = Field(0.2, ge=0, le=10)
    """The ratio may rise to 1 + clip_high."""
    dual_clip: float | None = Field(None, gt=1)
    """Largest ratio of a token with A < 0 that still has a gradient; unbounded by default."""


def ppo_clip(inputs: LossInputs[PpoClip]) -> LossTerms:
    """PPO's clip per token, with an optional second clip for A < 0."""
    settings, advantages_BT = inputs.settings, inputs.advantages_BT
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    ratio_BT = inputs.log_ratio().exp()
    loss_BT = clipped_surrogate(ratio_BT, advantages_BT, low, high)
    if settings.dual_clip is not None:
        ceiling_BT = (-settings.dual_clip * advantages_BT).where(advantages_BT < 0, math.inf)
        loss_BT = loss_BT.minimum(ceiling_BT)
    return LossTerms(loss_BT, *clip_flags(ratio_BT, advantages_BT, low, high))
