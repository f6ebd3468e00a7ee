"""LUSPO: GSPO with each response's term multiplied by the response's length.

Formula
    |o| max(-s A, -clip(s, 1 - clip_low, 1 + clip_high) A), one term per response, with |o| the
    response's loss tokens and s as in gspo. GSPO gives each token the gradient s A / |o|, so long
    responses learn less per token. Here each token has s A, whatever the length.

Denominator
    sequence-mean-token-sum only: each token carries its response's term, and the sum over the
    tokens is the multiplication by the length. The mean is over responses.

Settings
    clip_low 2e-3, clip_high 2.5e-3 (section 5.1).

Effect on metrics
    length/mean does not collapse as it can with gspo; the paper reports about 1.5 times its length.
    clip/low_rate and clip/high_rate count responses, as for gspo. The loss and
    optimizer/grad_norm grow with the length: tune the learning rate.

Other implementations
    TRL's loss_type="luspo" is this form and needs importance_sampling_level="sequence". The
    authors' code is a patch of verl.

Do not combine with
    Corrections that weight single tokens, GMPO and SAPO, as for gspo. A penalty on long responses
    pulls the other way.

Source
    arXiv 2602.05261.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.sequence_level.gspo import clipped_by_response
from grpodoctor.trainer.algorithms.losses.settings import LossConfig


class Luspo(LossConfig):
    """LUSPO: GSPO's term times the response's length."""

    one_term_per_response: ClassVar[bool] = True

    kind: Literal["luspo"] = "luspo"
    aggregation: Literal["sequence-mean-token-sum"] = "sequence-mean-token-sum"
    clip_low: float = Field(2e-3, ge=0, le=1)
    """The response's ratio may fall to 1 - clip_low."""
    clip_high: float = Field(2.5e-3, ge=0, le=10)
    """The response's ratio may rise to 1 + clip_high."""


def luspo(inputs: LossInputs[Luspo]) -> LossTerms:
    """GSPO's term; the sum over the tokens multiplies it by the length."""
    ratio_B1 = inputs.response_mean(inputs.log_ratio()).exp()
    return clipped_by_response(inputs, ratio_B1)
