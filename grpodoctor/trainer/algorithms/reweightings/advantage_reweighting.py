"""Advantage reweighting: the less likely a token, the less its advantage counts.

Formula
    A_t = (alpha p_t + 1 - alpha) A, with p_t the token's probability under the old policy, for both
    signs of A. Unlikely tokens have the largest gradients, about proportional to 1 - p, and
    dominate the others.

Settings
    reweighting.alpha, off by default; 0.2 alone, 0.3 with Lopti.

Effect on metrics
    advantage/token_weight, its mean, is between 1 - alpha and 1. optimizer/grad_norm falls.

Other implementations
    The authors' code calls it both_linear. A weight of 1 - p, found in some descriptions, is the
    opposite.

Do not combine with
    Losses with one term per response, which have no single tokens to weight; forking tokens, which
    mask the tokens that this reweighting favors.

Source
    arXiv 2505.12929.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.reweightings.base import ReweightingInputs


def advantage_reweighting(inputs: ReweightingInputs) -> Tensor:
    """Between 1 - alpha and 1, by the token's old probability, shape (1, B, T)."""
    alpha = inputs.settings.alpha or 0.0
    return (alpha * torch.exp(inputs.old_logprobs_BT) + (1 - alpha))[None]
