"""Inputs and outputs of a loss, and the helpers that losses share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from grpodoctor.trainer.algorithms.log_ratios import LOWEST_LOGPROB, bounded_log_ratio
from grpodoctor.trainer.algorithms.losses.settings import LossConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SettingsT = TypeVar("SettingsT", bound=LossConfig)


class TopTokens(NamedTuple):
    """The sampler's K most likely tokens at each position, under both policies; no gradient."""

    sampler_logprobs_BTK: Tensor
    new_logprobs_BTK: Tensor
    sampled_BTK: Tensor
    """Marks the sampled token if it is among them, bool."""


@dataclass(frozen=True, slots=True)
class LossInputs(Generic[SettingsT]):
    """Responses of one optimizer step. Values outside the mask are ignored."""

    new_logprobs_BT: Tensor
    """Under the current parameters; the only tensor with a gradient."""
    old_logprobs_BT: Tensor
    """Under the old policy."""
    sampler_logprobs_BT: Tensor
    """As reported by the engine that generated the tokens."""
    advantages_BT: Tensor
    mask_BT: Tensor
    """Tokens in the loss, bool."""
    settings: SettingsT
    chosen_BT: Tensor | None = None
    """Tokens of the whole step selected by `select_tokens` of the loss; None if it has none."""
    top: TopTokens | None = None
    """None if the loss does not need it."""
    router_shift_BT: Tensor | None = None
    """Router shift since the old policy, in (0, 1], 1 for no shift; None if not needed."""

    def selected(self) -> Tensor:
        """The selected tokens, bool, shape (B, T); none if nothing was selected."""
        nothing_BT = self.mask_BT.new_zeros(self.mask_BT.shape)
        return nothing_BT if self.chosen_BT is None else self.chosen_BT

    def log_ratio(self) -> Tensor:
        """log(new / old), shape (B, T), zero outside the mask."""
        return self._log_ratio_to(self.old_logprobs_BT)

    def log_ratio_to_sampler(self) -> Tensor:
        """log(new / sampler), shape (B, T), zero outside the mask."""
        return self._log_ratio_to(self.sampler_logprobs_BT)

    def _log_ratio_to(self, anchor_BT: Tensor) -> Tensor:
        # Mask before exponentiating: infinity times a zero gradient is NaN.
        return bounded_log_ratio(self.new_logprobs_BT, anchor_BT).where(self.mask_BT, 0.0)

    def masked_logprobs(self) -> Tensor:
        """The new log-probabilities, shape (B, T), zero outside the mask."""
        return self.new_logprobs_BT.clamp(min=LOWEST_LOGPROB).where(self.mask_BT, 0.0)

    def response_mean(self, values_BT: Tensor) -> Tensor:
        """Mean over each response's loss tokens, shape (B, 1); 0 for a response without any.

        Args:
            values_BT: zero outside the mask.
        """
        lengths_B1 = self.mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        return values_BT.sum(dim=1, keepdim=True) / lengths_B1


@dataclass(frozen=True, slots=True)
class LossTerms:
    """A loss before aggregation.

    The denominator belongs to the optimizer step, not to the loss: `aggregation.py` weights the
    tokens, so splitting a batch into micro-batches does not change the result.
    """

    loss_BT: Tensor
    """To be minimized; any value outside the mask."""
    clipped_low_BT: Tensor | None = None
    """Tokens with A < 0 whose gradient was stopped or bounded because the ratio fell; None if the
    loss has no bound. Shape (B, T), or (B, 1) if whole responses are clipped."""
    clipped_high_BT: Tensor | None = None
    """The same for A > 0 and a ratio that rose."""
    gate_BT: Tensor | None = None
    """Fraction of the gradient that a soft gate passes; None without a gate."""


Loss: TypeAlias = "Callable[[LossInputs[Any]], LossTerms]"
"""Called only with the settings class of the loss's own file."""

TokenSelector: TypeAlias = "Callable[[LossInputs[Any], torch.Generator], Tensor]"
"""Selects tokens of the whole optimizer step, without gradient: bool, shape (B, T).

A loss that compares tokens across responses defines a function `select_tokens` of this type, so
that the selection does not depend on how the step is split into micro-batches. The CPU generator is
its only source of randomness.
"""


def clipped_surrogate(ratio_BT: Tensor, advantages_BT: Tensor, low: float, high: float) -> Tensor:
    """PPO's pessimistic surrogate max(-r A, -clip(r, low, high) A), shape (B, T)."""
    unclipped_BT = -ratio_BT * advantages_BT
    return unclipped_BT.maximum(-ratio_BT.clamp(low, high) * advantages_BT)


def clip_flags(
    ratio_BT: Tensor, advantages_BT: Tensor, low: Tensor | float, high: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Where a pessimistic clip stops the gradient: A < 0 below `low`, A > 0 above `high`."""
    return (advantages_BT < 0) & (ratio_BT < low), (advantages_BT > 0) & (ratio_BT > high)


def covariances(inputs: LossInputs[Any]) -> Tensor:
    """(log new - its mean) (A - its mean), shape (B, T), zero outside the mask.

    Means are over the loss tokens given. The entropy of a softmax policy falls by the mean of this
    covariance.

    Source: arXiv 2505.22617, Eq. 10.
    """
    mask_BT, new_BT = inputs.mask_BT, inputs.masked_logprobs().detach()
    count = mask_BT.sum().clamp(min=1)
    deviations = [
        (values_BT - values_BT.where(mask_BT, 0.0).sum() / count).where(mask_BT, 0.0)
        for values_BT in (new_BT, inputs.advantages_BT)
    ]
    return deviations[0] * deviations[1]
