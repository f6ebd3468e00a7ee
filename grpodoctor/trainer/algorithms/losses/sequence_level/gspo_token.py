"""GSPO-token: GSPO's ratio and clip, with a gradient and an advantage for each token.

Formula
    s_t = sg[s] new / sg[new], with s as in gspo and sg = stop gradient;
    max(-s_t A_t, -clip(s_t, 1 - clip_low, 1 + clip_high) A_t). Value and gradient equal those of
    gspo if all tokens of a response have the same advantage.

Denominator
    sequence-mean only, as for gspo.

Settings
    clip_low 3e-4, clip_high 4e-4.

Effect on metrics
    As gspo. Clip rates count tokens, which agree within a response.

Other implementations
    verl's gspo is this form, with the log-ratio clamped at 10. TRL has it as an experiment.

Do not combine with
    GMPO and SAPO, which bound the same ratio. Token corrections work with this loss.

Source
    arXiv 2507.18071, section 4.3.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import (
    LossInputs,
    LossTerms,
    clip_flags,
    clipped_surrogate,
)
from grpodoctor.trainer.algorithms.losses.settings import LossConfig


class GspoToken(LossConfig):
    """GSPO-token: the response's ratio, applied token by token."""

    kind: Literal["gspo_token"] = "gspo_token"
    aggregation: Literal["sequence-mean"] = "sequence-mean"
    clip_low: float = Field(3e-4, ge=0, le=1)
    """The response's ratio may fall to 1 - clip_low."""
    clip_high: float = Field(4e-4, ge=0, le=10)
    """The response's ratio may rise to 1 + clip_high."""


def gspo_token(inputs: LossInputs[GspoToken]) -> LossTerms:
    """PPO's clip per token on the geometric mean of the response's ratios."""
    low, high = 1 - inputs.settings.clip_low, 1 + inputs.settings.clip_high
    log_ratio_BT = inputs.log_ratio()
    shared_B1 = inputs.response_mean(log_ratio_BT).detach()
    ratio_BT = (shared_B1 + log_ratio_BT - log_ratio_BT.detach()).exp()
    loss_BT = clipped_surrogate(ratio_BT, inputs.advantages_BT, low, high)
    return LossTerms(loss_BT, *clip_flags(ratio_BT, inputs.advantages_BT, low, high))
