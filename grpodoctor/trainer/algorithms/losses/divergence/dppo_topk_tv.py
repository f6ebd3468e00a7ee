"""DPPO with the total variation over the sampler's most likely tokens.

Formula
    As dppo_binary_tv, with a divergence over more outcomes: the sampler's top_tokens most likely
    tokens, the sampled token, and all others as one outcome. The divergence is half the sum of
    |sampler - new| over these outcomes. It is between the binary and the full total variation.

Denominator
    token-mean; the paper leaves it to the recipe.

Settings
    top_tokens 20, divergence_limit 0.15, ratio_cap off.

Effect on metrics
    As dppo_binary_tv. The authors found no gain over the binary form, which needs only the
    log-probability of the sampled token; prefer that one.

Other implementations
    TRL had it as an experiment and has removed it. The set of tokens is the sampler's most likely
    tokens, not "the largest contributions to the divergence".

Do not combine with
    A correction or PPO's clip, as for dppo_binary_tv.

Source
    arXiv 2602.04879.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.divergence._shared import (
    TopDivergenceConfig,
    coarsened,
    masked_surrogate,
)


class DppoTopkTv(TopDivergenceConfig):
    """DPPO with the total variation over the sampler's most likely tokens."""

    kind: Literal["dppo_topk_tv"] = "dppo_topk_tv"
    divergence_limit: float = Field(0.15, gt=0, le=1)
    """Total variation above which a token may not move further away."""


def dppo_topk_tv(inputs: LossInputs[DppoTopkTv]) -> LossTerms:
    """-r A, without the tokens beyond a coarse total variation that move further away."""
    sampler_BTS, new_BTS = coarsened(inputs)
    variation_BT = (sampler_BTS - new_BTS).abs().sum(dim=-1) / 2
    return masked_surrogate(inputs, variation_BT > inputs.settings.divergence_limit)
