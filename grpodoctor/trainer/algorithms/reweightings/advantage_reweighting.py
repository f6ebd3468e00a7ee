"""Advantage reweighting: the rarer a token was, the less its advantage counts.

Formula
    A_t = (alpha p_t + 1 - alpha) A, p_t the token's probability under the old policy, for both
    signs of A. Tokens of low probability have the largest gradients, by about 1 - p, and drown the
    others.

Settings
    reweighting.alpha, off by default; 0.2 alone, 0.3 beside Lopti.

Effect on metrics
    advantage/token_weight, its mean, between 1 - alpha and 1; optimizer/grad_norm falls.

Other implementations
    The authors' code calls it both_linear. A weight of 1 - p, as some write it, is the opposite.

Do not combine with
    Losses with one term a response, which have no single tokens to weigh; forking tokens, which
    leave out what this favours.

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
