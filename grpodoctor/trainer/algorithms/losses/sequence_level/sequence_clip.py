"""PPO's clip on the whole response's ratio, the product over its tokens: RLOO as in TRL.

Formula
    s = exp(sum over the response's tokens of log(new / old));
    max(-s A, -clip(s, 1 - clip_low, 1 + clip_high) A), one term per response. Unlike the ratio of
    gspo, s is the importance weight of the response and compounds with length.

Denominator
    sequence-mean only: each token carries its response's term.

Settings
    clip_low 0.2, clip_high 0.2. With many tokens and several updates per batch, nearly every
    response exceeds these bounds. Use one update per batch; the loss is then RLOO itself.

Effect on metrics
    clip/low_rate and clip/high_rate count responses and are near 1 after the first update of a
    batch.

Other implementations
    TRL's RLOOTrainer, which also subtracts 0.05 times the sum of k1 from the reward and samples two
    responses per prompt. RLOO's own paper has no ratio: that is the loss reinforce with the
    advantage leave_one_out.

Do not combine with
    Corrections that weight single tokens, as for gspo; a second clip of the same ratio.

Source
    PPO, arXiv 1707.06347, with a response as the action; RLOO, arXiv 2402.14740.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.sequence_level.gspo import clipped_by_response
from grpodoctor.trainer.algorithms.losses.settings import LossConfig

_MAX_LOG_RATIO = 80.0
"""Its exponential is finite in float32: infinity times the zero gradient of a clipped response is
NaN."""


class SequenceClip(LossConfig):
    """PPO's clip on the product of a response's ratios."""

    one_term_per_response: ClassVar[bool] = True

    kind: Literal["sequence_clip"] = "sequence_clip"
    aggregation: Literal["sequence-mean"] = "sequence-mean"
    clip_low: float = Field(0.2, ge=0, le=1)
    """The response's ratio may fall to 1 - clip_low."""
    clip_high: float = Field(0.2, ge=0, le=10)
    """The response's ratio may rise to 1 + clip_high."""


def sequence_clip(inputs: LossInputs[SequenceClip]) -> LossTerms:
    """PPO's clip on the product of a response's ratios."""
    log_ratio_B1 = inputs.log_ratio().sum(dim=1, keepdim=True)
    return clipped_by_response(inputs, log_ratio_B1.clamp(max=_MAX_LOG_RATIO).exp())
