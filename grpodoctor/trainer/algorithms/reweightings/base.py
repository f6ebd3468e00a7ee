"""What a reweighting is given and gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from grpodoctor.trainer.algorithms.reweightings.settings import ReweightingConfig


@dataclass(frozen=True, slots=True)
class ReweightingInputs:
    """The tokens of one rollout batch, before the first update. Zeros stand outside the mask."""

    old_logprobs_BT: Tensor
    """Under what stands for the old policy."""
    entropy_BT: Tensor
    """Of the learner when the batch began, in nats."""
    mask_BT: Tensor
    """Tokens that bear loss, bool."""
    settings: ReweightingConfig


Reweighting = Callable[[ReweightingInputs], Tensor]
"""Returns factors on the advantages, shape (P, B, T): P passes over the batch, one after the other.

Two passes share the tokens out: each has a factor of zero where the other has one. A token without
a factor stays in the loss's denominator, and in that pass it bears no penalty either.
"""
