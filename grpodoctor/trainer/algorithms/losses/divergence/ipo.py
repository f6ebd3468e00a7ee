"""IPO as in prime-rl: masks every token whose probability moved too far, in either direction.

Formula
    -M r A + drift_penalty log(new / sampler)^2 per token, r = new / sampler. M is 0 if |new -
    sampler| of the token's probability exceeds divergence_limit, otherwise 1. M has no gradient.
    The drift penalty applies to masked tokens too, and pulls them back.

Denominator
    token-mean: all loss tokens of the step, masked ones included.

Settings
    divergence_limit 0.1, drift_penalty 0.001, ratio_cap off, as in prime-rl. Used there with
    centered advantages.

Effect on metrics
    clip/low_rate and clip/high_rate are the fractions of tokens masked after their probability fell
    or rose, whatever the sign of A. They are higher than with dppo_binary_tv, which lets a token
    move back.

Other implementations
    prime-rl's loss type ipo is this form. The preference loss of the same name (arXiv 2310.12036)
    is unrelated.

Do not combine with
    A correction or PPO's clip, as for dppo_binary_tv.

Source
    prime-rl, src/prime_rl/trainer/rl/loss.py (ipo_loss_fn), commit 559b4477 of August 2026. No
    paper is known.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.divergence._shared import (
    DivergenceConfig,
    masked_surrogate,
    total_variation,
)


class Ipo(DivergenceConfig):
    """IPO: a symmetric bound on the change of a token's probability."""

    kind: Literal["ipo"] = "ipo"
    divergence_limit: float = Field(0.1, gt=0, le=1)
    """Total variation above which a token has no policy gradient."""
    drift_penalty: float = Field(1e-3, ge=0, le=10)
    """Weight of log(learner / sampler) squared on every loss token."""


def ipo(inputs: LossInputs[Ipo]) -> LossTerms:
    """-r A, without the tokens beyond a total variation, plus the drift penalty."""
    beyond_BT = total_variation(inputs) > inputs.settings.divergence_limit
    return masked_surrogate(inputs, beyond_BT, symmetric=True)
