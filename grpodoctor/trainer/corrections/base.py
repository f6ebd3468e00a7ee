"""What a correction of the sampler-learner mismatch is given and gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class CorrectionInputs:
    """The log-probabilities of one rollout batch. Positions outside the mask hold zeros."""

    learner_logprobs_BT: Tensor
    """Under the learner when the batch began."""
    sampler_logprobs_BT: Tensor
    """As the engine that generated the tokens reports them."""
    mask_BT: Tensor
    """Tokens that bear loss, bool."""
    cap: float


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
    capped_BT = (weights_BT > inputs.cap) & inputs.mask_BT
    return Corrected(torch.clamp(weights_BT, max=inputs.cap), capped_BT)
