"""DPPO with the KL divergence over the sampler's most likely tokens.

Formula
    As dppo_topk_tv, with the divergence KL(sampler, new) over the same outcomes: the sum of p log(p
    / q) over the sampler's top_tokens most likely tokens, the sampled token and all others as one
    outcome, where p is the sampler's and q the learner's probability.

Denominator
    token-mean; the paper leaves it to the recipe.

Settings
    top_tokens 20, divergence_limit 0.05 nats, ratio_cap off.

Effect on metrics
    As dppo_binary_kl. The authors found no gain over the binary form; prefer that one.

Other implementations
    TRL had it as an experiment and has removed it.

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


class DppoTopkKl(TopDivergenceConfig):
    """DPPO with the KL divergence over the sampler's most likely tokens."""

    kind: Literal["dppo_topk_kl"] = "dppo_topk_kl"
    divergence_limit: float = Field(0.05, gt=0, le=10)
    """KL divergence, in nats, above which a token may not move further away."""


def dppo_topk_kl(inputs: LossInputs[DppoTopkKl]) -> LossTerms:
    """-r A, without the tokens beyond a coarse KL divergence that move further away."""
    sampler_BTS, new_BTS = coarsened(inputs)
    # p log p - p log q is 0 if the sampler's p is 0, for any q of the learner.
    divergence_BTS = sampler_BTS.xlogy(sampler_BTS) - sampler_BTS.xlogy(new_BTS)
    divergence_BT = divergence_BTS.sum(dim=-1)
    return masked_surrogate(inputs, divergence_BT > inputs.settings.divergence_limit)
