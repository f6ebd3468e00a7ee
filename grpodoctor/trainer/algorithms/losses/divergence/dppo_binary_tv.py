"""DPPO with the binary total variation: masks tokens by divergence instead of by ratio.

Formula
    -M r A per token, r = new / sampler. M is 0 if the token moves further away (A > 0 and r > 1, or
    A < 0 and r < 1) while |sampler - new| of its probability exceeds divergence_limit, otherwise 1.
    M has no gradient. ratio_cap bounds the gradient's weight r. With drift_penalty = c,
    c log(new / sampler)^2 is added for every loss token, masked ones included.

Denominator
    token-mean; the paper leaves it to the recipe.

Settings
    divergence_limit 0.15 (0.2 in the scaling runs), ratio_cap off (5 in the scaling runs),
    drift_penalty 0. Used with an advantage without standard deviation. prime-rl's default is
    divergence_limit 0.2 with drift_penalty 0.001: the preset prime_rl.

Effect on metrics
    clip/low_rate and clip/high_rate, the fractions of tokens masked on either side, stay small.
    Rare tokens are no longer clipped for a large ratio of tiny probabilities.

Other implementations
    verl multiplies -A log new by min(r, cap). Its gradient is the same, but it is correct only
    while the sampler's log-probabilities are used as the old ones. prime-rl adds the drift
    penalty; its documentation mentions a bound on the ratio that its code does not have. TRL has
    removed its implementation.

Do not combine with
    A correction or PPO's clip: the ratio is relative to the sampler. In the paper, training
    collapses if it is anchored on recomputed old log-probabilities instead.

Source
    arXiv 2602.04879; drift penalty, Kimi K2.5, arXiv 2602.02276, as implemented in prime-rl
    (default_loss_fn, commit 559b4477).
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


class DppoBinaryTv(DivergenceConfig):
    """DPPO with the binary total variation."""

    kind: Literal["dppo_binary_tv"] = "dppo_binary_tv"
    divergence_limit: float = Field(0.15, gt=0, le=1)
    """Total variation above which a token may not move further away."""


def dppo_binary_tv(inputs: LossInputs[DppoBinaryTv]) -> LossTerms:
    """-r A, without the tokens beyond a total variation that move further away."""
    return masked_surrogate(inputs, total_variation(inputs) > inputs.settings.divergence_limit)
