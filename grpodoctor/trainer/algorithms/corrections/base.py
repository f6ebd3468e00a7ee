"""What a correction of the sampler-learner mismatch is given and gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.corrections.settings import CorrectionConfig


@dataclass(frozen=True, slots=True)
class CorrectionInputs:
    """The log-probabilities of one rollout batch. Positions outside the mask hold zeros."""

    learner_logprobs_BT: Tensor
    """Under the learner when the batch began."""
    sampler_logprobs_BT: Tensor
    """As the engine that generated the tokens reports them."""
    mask_BT: Tensor
    """Tokens that bear loss, bool."""
    settings: CorrectionConfig

    def log_weights(self) -> Tensor:
        """log(learner / sampler), shape (B, T), zero outside the mask."""
        return torch.where(self.mask_BT, self.learner_logprobs_BT - self.sampler_logprobs_BT, 0.0)

    def response_log_weights(self) -> Tensor:
        """The logarithm of the product over each response's tokens, shape (B, 1).

        Or of their geometric mean, where the settings ask for it.
        """
        if self.settings.of_response == "geometric-mean":
            return self.mean_log_weights()
        return self.log_weights().sum(dim=1, keepdim=True)

    def mean_log_weights(self) -> Tensor:
        """The mean over each response's tokens, shape (B, 1); 0 where it has none."""
        lengths_B1 = self.mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        return self.log_weights().sum(dim=1, keepdim=True) / lengths_B1


@dataclass(frozen=True, slots=True)
class Corrected:
    """Weights of the policy loss, without a gradient."""

    weights_BT: Tensor
    capped_BT: Tensor
    """Where the weight was capped or set to zero, bool."""


Correction = Callable[[CorrectionInputs], Corrected | None]
"""None if nothing is corrected."""


def truncated(weights_BT: Tensor, inputs: CorrectionInputs) -> Corrected:
    """Weights cut off at the cap."""
    cap = inputs.settings.cap
    capped_BT = (weights_BT > cap) & inputs.mask_BT
    return Corrected(torch.clamp(weights_BT, max=cap), capped_BT)


def masked(weights_BT: Tensor, judged_BT: Tensor, inputs: CorrectionInputs) -> Corrected:
    """The weights as they are where what is judged lies within floor and cap, elsewhere zero.

    The tokens stay in the loss's denominator: leaving some out does not raise the others.
    """
    floor, cap = inputs.settings.floor, inputs.settings.cap
    within_BT = (judged_BT >= floor) & (judged_BT <= cap)
    return Corrected(torch.where(within_BT, weights_BT, 0.0), ~within_BT & inputs.mask_BT)
