"""What a loss is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from grpodoctor.trainer.config import LossConfig


@dataclass(frozen=True, slots=True)
class LossInputs:
    """Some responses of one optimiser step.

    Positions outside the mask hold zeros in every tensor, so that a loss may exponentiate
    differences without meeting garbage.
    """

    new_logprobs_BT: Tensor
    """Under the current parameters; the only tensor with a gradient."""
    old_logprobs_BT: Tensor
    """Under what stands for the old policy."""
    advantages_BT: Tensor
    mask_BT: Tensor
    """Tokens that bear loss, bool."""
    settings: LossConfig


@dataclass(frozen=True, slots=True)
class LossTerms:
    """A loss before its aggregation.

    The denominator belongs to the optimiser step and not to the loss: `aggregation.py` weighs the
    tokens, so that splitting a batch changes nothing.
    """

    loss_BT: Tensor
    """To be minimised; anything outside the mask."""
    clipped_low_BT: Tensor
    """Where the gradient of a token with A < 0 was stopped because its ratio fell; (B, T), or
    (B, 1) where whole responses are clipped."""
    clipped_high_BT: Tensor
    """Where the gradient of a token with A > 0 was stopped because its ratio rose."""


Loss = Callable[[LossInputs], LossTerms]
