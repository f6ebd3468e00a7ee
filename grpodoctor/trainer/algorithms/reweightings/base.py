"""Inputs and output of a reweighting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from grpodoctor.trainer.algorithms.reweightings.settings import ReweightingConfig


@dataclass(frozen=True, slots=True)
class ReweightingInputs:
    """The tokens of one rollout batch before the first update; zero outside the mask."""

    old_logprobs_BT: Tensor
    """Under the old policy."""
    entropy_BT: Tensor
    """Entropy of the learner at the start of the batch, in nats."""
    mask_BT: Tensor
    """Tokens in the loss, bool."""
    settings: ReweightingConfig


Reweighting = Callable[[ReweightingInputs], Tensor]
"""Returns factors on the advantages, shape (P, B, T), for P consecutive passes over the batch.

Two passes divide the tokens: one has a factor of zero where the other has one. A token with factor
zero stays in the loss's denominator and has no penalty in that pass.
"""
