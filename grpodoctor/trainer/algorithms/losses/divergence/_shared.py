"""Settings and code that the divergence losses share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig

if TYPE_CHECKING:
    from torch import Tensor


class DivergenceConfig(LossConfig):
    """A loss that masks tokens beyond a divergence between sampler and learner."""

    anchored_on_sampler: ClassVar[bool] = True

    aggregation: Aggregation = "token-mean"
    ratio_cap: float | None = Field(None, ge=1, le=1000)
    """Largest weight of a token's gradient; unbounded by default."""
    drift_penalty: float = Field(0.0, ge=0, le=10)
    """Weight of log(learner / sampler) squared on every loss token; prime-rl uses 0.001."""


class TopDivergenceConfig(DivergenceConfig):
    """A divergence over the sampler's most likely tokens."""

    top_tokens: int = Field(20, ge=1, le=1000)
    """How many of the sampler's most likely tokens to distinguish; all others are one outcome."""

    def sampler_top_tokens(self) -> int:
        """The number of distinguished tokens."""
        return self.top_tokens


def total_variation(inputs: LossInputs[Any]) -> Tensor:
    """|learner - sampler| of each sampled token's probability, shape (B, T), without gradient."""
    return (inputs.sampler_logprobs_BT.exp() - inputs.new_logprobs_BT.detach().exp()).abs()


def masked_surrogate(
    inputs: LossInputs[Any], beyond_BT: Tensor, *, symmetric: bool = False
) -> LossTerms:
    """-r A with r = new / sampler, without tokens beyond the limit, plus the drift penalty.

    Tokens beyond the limit are masked if they move further away or, with `symmetric`, in any case.
    `ratio_cap` bounds both the value and the gradient's weight.
    """
    settings: DivergenceConfig = inputs.settings
    log_ratio_BT, advantages_BT = inputs.log_ratio_to_sampler(), inputs.advantages_BT
    ratio_BT = log_ratio_BT.exp()
    if symmetric:
        low_BT, high_BT = beyond_BT & (ratio_BT < 1), beyond_BT & (ratio_BT > 1)
    else:
        low_BT, high_BT = clip_flags(ratio_BT, advantages_BT, 1.0, 1.0)
        low_BT, high_BT = low_BT & beyond_BT, high_BT & beyond_BT
    if settings.ratio_cap is not None:
        ratio_BT = ratio_BT * (settings.ratio_cap / ratio_BT.detach()).clamp(max=1.0)
    loss_BT = (-ratio_BT * advantages_BT).where(~(low_BT | high_BT), 0.0)
    if settings.drift_penalty:
        loss_BT = loss_BT + settings.drift_penalty * log_ratio_BT.square()
    return LossTerms(loss_BT, low_BT, high_BT)


def coarsened(inputs: LossInputs[Any]) -> tuple[Tensor, Tensor]:
    """Probabilities of the sampler's K most likely tokens, the sampled token, and all others.

    Returns:
        The sampler's and the learner's, shape (B, T, K + 2), without gradient. If the sampled token
        is among the K most likely, its separate entry is 0.

    Raises:
        ConfigError: if the engine does not report its most likely tokens.
    """
    if inputs.top is None:
        raise ConfigError(
            "the sampling engine does not report its most likely tokens",
            where="loss.kind and engine.kind",
            remedy="use dppo_binary_tv or dppo_binary_kl, which do not need them",
        )
    listed_BT = inputs.top.sampled_BTK.any(dim=-1)
    sampler_BTS, new_BTS = (
        _with_rest(top_BTK.exp(), own_BT.detach().exp().masked_fill(listed_BT, 0.0)[..., None])
        for top_BTK, own_BT in (
            (inputs.top.sampler_logprobs_BTK, inputs.sampler_logprobs_BT),
            (inputs.top.new_logprobs_BTK, inputs.new_logprobs_BT),
        )
    )
    return sampler_BTS, new_BTS


def _with_rest(top_BTK: Tensor, own_BT1: Tensor) -> Tensor:
    """Append the probability of all other tokens, at least the smallest positive one."""
    import torch

    listed_BTS = torch.cat([top_BTK, own_BT1], dim=-1)
    rest_BT1 = (1 - listed_BTS.sum(dim=-1, keepdim=True)).clamp(min=torch.finfo(top_BTK.dtype).eps)
    return torch.cat([listed_BTS, rest_BT1], dim=-1)
