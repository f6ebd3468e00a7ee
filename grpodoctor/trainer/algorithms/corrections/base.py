"""Inputs and outputs of a correction of the engine mismatch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.corrections.settings import CorrectionConfig
from grpodoctor.trainer.algorithms.log_ratios import bounded_log_ratio


@dataclass(frozen=True, slots=True)
class CorrectionInputs:
    """The log-probabilities of one rollout batch; zero outside the mask."""

    learner_logprobs_BT: Tensor
    """Under the learner at the start of the batch."""
    sampler_logprobs_BT: Tensor
    """As reported by the engine that generated the tokens."""
    mask_BT: Tensor
    """Tokens in the loss, bool."""
    settings: CorrectionConfig

    def log_weights(self) -> Tensor:
        """log(learner / sampler), shape (B, T), zero outside the mask."""
        log_weights_BT = bounded_log_ratio(self.learner_logprobs_BT, self.sampler_logprobs_BT)
        return torch.where(self.mask_BT, log_weights_BT, 0.0)

    def response_log_weights(self) -> Tensor:
        """Log of the product, or by the settings of the geometric mean, per response, (B, 1)."""
        if self.settings.of_response == "geometric-mean":
            return self.mean_log_weights()
        return self.log_weights().sum(dim=1, keepdim=True)

    def mean_log_weights(self) -> Tensor:
        """The mean over each response's tokens, shape (B, 1); 0 without tokens."""
        lengths_B1 = self.mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        return self.log_weights().sum(dim=1, keepdim=True) / lengths_B1


@dataclass(frozen=True, slots=True)
class Corrected:
    """Weights of the policy loss, without gradient."""

    weights_BT: Tensor
    capped_BT: Tensor
    """Tokens whose weight was capped or set to zero, bool."""


Correction = Callable[[CorrectionInputs], Corrected | None]
"""Returns None if nothing is corrected."""


def truncated(weights_BT: Tensor, inputs: CorrectionInputs) -> Corrected:
    """Weights truncated at the cap."""
    cap = inputs.settings.cap
    capped_BT = (weights_BT > cap) & inputs.mask_BT
    return Corrected(torch.clamp(weights_BT, max=cap), capped_BT)


def masked(weights_BT: Tensor, judged_BT: Tensor, inputs: CorrectionInputs) -> Corrected:
    """The weights if `judged_BT` is between floor and cap, otherwise zero.

    Masked tokens stay in the loss's denominator, so masking does not raise the other weights.
    """
    floor, cap = inputs.settings.floor, inputs.settings.cap
    within_BT = (judged_BT >= floor) & (judged_BT <= cap)
    return Corrected(torch.where(within_BT, weights_BT, 0.0), ~within_BT & inputs.mask_BT)
