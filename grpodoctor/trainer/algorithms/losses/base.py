"""What a loss is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.config.loss_settings import LossConfig

SettingsT = TypeVar("SettingsT", bound=LossConfig)


class TopTokens(NamedTuple):
    """The sampler's K likeliest tokens at each position, as both policies see them; no gradient."""

    sampler_logprobs_BTK: Tensor
    new_logprobs_BTK: Tensor
    sampled_BTK: Tensor
    """Where one of them is the token that was sampled, bool."""


@dataclass(frozen=True, slots=True)
class LossInputs(Generic[SettingsT]):
    """Some responses of one optimizer step. What stands outside the mask is never looked at."""

    new_logprobs_BT: Tensor
    """Under the current parameters; the only tensor with a gradient."""
    old_logprobs_BT: Tensor
    """Under what stands for the old policy."""
    sampler_logprobs_BT: Tensor
    """As the engine that generated the tokens reports them."""
    advantages_BT: Tensor
    mask_BT: Tensor
    """Tokens that bear loss, bool."""
    settings: SettingsT
    chosen_BT: Tensor | None = None
    """What the loss's `choose` singled out of the whole step; None for a loss without a choice."""
    top: TopTokens | None = None
    """None where the loss does not want it."""
    router_shift_BT: Tensor | None = None
    """How little the routers moved since the old policy, in (0, 1]; None where not wanted."""

    def chosen(self) -> Tensor:
        """Which tokens the choice singled out, bool, shape (B, T); none where it was not made."""
        return torch.zeros_like(self.mask_BT) if self.chosen_BT is None else self.chosen_BT

    def log_ratio(self) -> Tensor:
        """log(new / old), shape (B, T), zero outside the mask."""
        return self._log_ratio_to(self.old_logprobs_BT)

    def log_ratio_to_sampler(self) -> Tensor:
        """log(new / sampler), shape (B, T), zero outside the mask."""
        return self._log_ratio_to(self.sampler_logprobs_BT)

    def _log_ratio_to(self, anchor_BT: Tensor) -> Tensor:
        # Chosen before anything is exponentiated: an infinity times a zero gradient is not zero.
        return torch.where(self.mask_BT, self.new_logprobs_BT - anchor_BT, 0.0)

    def response_mean(self, values_BT: Tensor) -> Tensor:
        """The mean over each response's loss tokens, shape (B, 1); `values_BT` has zeros outside.

        A response without loss tokens has the mean 0.
        """
        lengths_B1 = self.mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        return values_BT.sum(dim=1, keepdim=True) / lengths_B1


@dataclass(frozen=True, slots=True)
class LossTerms:
    """A loss before its aggregation.

    The denominator belongs to the optimizer step and not to the loss: `aggregation.py` weighs the
    tokens, so that splitting a batch changes nothing.
    """

    loss_BT: Tensor
    """To be minimised; anything outside the mask."""
    clipped_low_BT: Tensor | None = None
    """Where a token with A < 0 lost its gradient, or had it bounded, because its ratio fell; None
    where the loss has no bound. (B, T), or (B, 1) where whole responses are clipped."""
    clipped_high_BT: Tensor | None = None
    """The same for A > 0 and a ratio that rose."""
    gate_BT: Tensor | None = None
    """Which share of its gradient a soft gate leaves a token; None where there is no gate."""


# Each loss takes inputs with the settings of its own kind; who calls it has checked the kind.
Loss = Callable[[LossInputs[Any]], LossTerms]

Choice = Callable[[LossInputs[Any], torch.Generator], Tensor]
"""Given the whole optimizer step, without gradient: which tokens, bool, shape (B, T).

A loss that compares tokens across responses has a function `choose` of this kind beside it, so that
its choice does not depend on how the step is split into micro-batches. The generator, on the CPU,
is its only source of randomness.
"""


def clip_flags(
    ratio_BT: Tensor, advantages_BT: Tensor, low: Tensor | float, high: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Where a pessimistic clip stops the gradient: A < 0 below `low`, A > 0 above `high`."""
    return (advantages_BT < 0) & (ratio_BT < low), (advantages_BT > 0) & (ratio_BT > high)


def masked_surrogate(
    inputs: LossInputs[Any], beyond_BT: Tensor, ratio_cap: float | None
) -> LossTerms:
    """-r A to the sampler, without the tokens `beyond` a limit that move further away.

    Args:
        inputs: of a loss that is anchored on the sampler.
        beyond_BT: whose distribution is too far from the sampler's already.
        ratio_cap: bounds the value and the gradient's weight alike; None leaves them.
    """
    ratio_BT, advantages_BT = torch.exp(inputs.log_ratio_to_sampler()), inputs.advantages_BT
    low_BT, high_BT = clip_flags(ratio_BT, advantages_BT, 1.0, 1.0)
    low_BT, high_BT = low_BT & beyond_BT, high_BT & beyond_BT
    if ratio_cap is not None:
        ratio_BT = ratio_BT * (ratio_cap / ratio_BT.detach()).clamp(max=1.0)
    loss_BT = torch.where(low_BT | high_BT, 0.0, -ratio_BT * advantages_BT)
    return LossTerms(loss_BT, low_BT, high_BT)


def covariances(inputs: LossInputs[Any]) -> Tensor:
    """(log new - its mean) (A - its mean), shape (B, T), means over the loss tokens given.

    Outside the mask it is zero. The entropy of a softmax policy falls by the mean of it.

    Source: arXiv 2505.22617, Eq. 10.
    """
    mask_BT, new_BT = inputs.mask_BT, inputs.new_logprobs_BT.detach()
    count = mask_BT.sum().clamp(min=1)
    deviations = [
        torch.where(mask_BT, values_BT - torch.where(mask_BT, values_BT, 0.0).sum() / count, 0.0)
        for values_BT in (new_BT, inputs.advantages_BT)
    ]
    return deviations[0] * deviations[1]


def coarsened(inputs: LossInputs[Any]) -> tuple[Tensor, Tensor]:
    """Probabilities of the sampler's K likeliest tokens, of the sampled token, and of all others.

    Returns:
        Sampler's and learner's, shape (B, T, K + 2), without gradient. Where the sampled token is
        one of the likeliest, the place of its own holds none.

    Raises:
        ConfigError: if the engine that sampled does not tell its likeliest tokens.
    """
    if inputs.top is None:
        raise ConfigError(
            "the engine that samples does not tell its likeliest tokens",
            where="loss.kind and engine.kind",
            remedy="use dppo_binary_tv or dppo_binary_kl, which do not ask for them",
        )
    known_BT1 = inputs.top.sampled_BTK.any(dim=-1, keepdim=True)
    sampler_BTS, new_BTS = (
        _with_rest(
            torch.exp(top_BTK), torch.where(known_BT1, 0.0, torch.exp(own_BT.detach())[..., None])
        )
        for top_BTK, own_BT in (
            (inputs.top.sampler_logprobs_BTK, inputs.sampler_logprobs_BT),
            (inputs.top.new_logprobs_BTK, inputs.new_logprobs_BT),
        )
    )
    return sampler_BTS, new_BTS


def _with_rest(top_BTK: Tensor, own_BT1: Tensor) -> Tensor:
    """A rest that rounding would make negative is next to nothing, and never quite nothing."""
    listed_BTS = torch.cat([top_BTK, own_BT1], dim=-1)
    rest_BT1 = (1 - listed_BTS.sum(dim=-1, keepdim=True)).clamp(min=torch.finfo(top_BTK.dtype).eps)
    return torch.cat([listed_BTS, rest_BT1], dim=-1)
