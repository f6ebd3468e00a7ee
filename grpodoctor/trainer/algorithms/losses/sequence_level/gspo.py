"""GSPO: one importance ratio and one clip per response.

Formula
    s = exp(mean over the response's tokens of log(new / old));
    max(-s A, -clip(s, 1 - clip_low, 1 + clip_high) A), one term per response. Each token of the
    response gets the same share of the gradient.

Denominator
    sequence-mean only: each token carries its response's term, and the mean over the tokens is that
    term. A mean over all tokens would weight long responses more than the paper does.

Settings
    clip_low 3e-4, clip_high 4e-4: the geometric mean of many ratios is close to 1. A width chosen
    for single tokens, such as 0.2, never clips.

Effect on metrics
    clip/low_rate and clip/high_rate count responses and are about two orders of magnitude higher
    than with a token clip in the paper. experts/churn_update matters less.

Other implementations
    verl computes the form of gspo_token, which is equal if a response has one advantage. TRL needs
    loss_type="grpo" together with importance_sampling_level="sequence". AReaL weights by tokens.
    OpenRLHF uses the sampler as the old policy when a correction is on.

Do not combine with
    Corrections that weight single tokens, because a response has one term (use gspo_token, or a
    correction of whole responses, which acts on another ratio); GMPO and SAPO, which bound the same
    ratio. The length-normalized ratio is not the importance weight of the response.

Source
    arXiv 2507.18071, section 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import (
    LossInputs,
    LossTerms,
    clip_flags,
    clipped_surrogate,
)
from grpodoctor.trainer.algorithms.losses.settings import LossConfig

if TYPE_CHECKING:
    from torch import Tensor


class Gspo(LossConfig):
    """GSPO: one ratio and one clip per response."""

    one_term_per_response: ClassVar[bool] = True

    kind: Literal["gspo"] = "gspo"
    aggregation: Literal["sequence-mean"] = "sequence-mean"
    clip_low: float = Field(3e-4, ge=0, le=1)
    """The response's ratio may fall to 1 - clip_low."""
    clip_high: float = Field(4e-4, ge=0, le=10)
    """The response's ratio may rise to 1 + clip_high."""


def gspo(inputs: LossInputs[Gspo]) -> LossTerms:
    """PPO's clip on the geometric mean of a response's ratios."""
    return clipped_by_response(inputs, inputs.response_mean(inputs.log_ratio()).exp())


def clipped_by_response(inputs: LossInputs[Any], ratio_B1: Tensor) -> LossTerms:
    """PPO's clip on one ratio per response, for settings with clip_low and clip_high."""
    low, high = 1 - inputs.settings.clip_low, 1 + inputs.settings.clip_high
    loss_BT = clipped_surrogate(ratio_B1, inputs.advantages_BT, low, high)
    # All tokens share the response's advantage. The first token is never padding.
    return LossTerms(loss_BT, *clip_flags(ratio_B1, inputs.advantages_BT[:, :1], low, high))
