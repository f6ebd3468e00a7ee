"""Lopti: the rare tokens of a batch are learnt from first, then the others.

Formula
    Two passes over the batch, each with all its updates: in the first only tokens whose probability
    under the old policy is below lopti_threshold have an advantage, in the second only the rest.
    The old log-probabilities stay those from before the first pass.

Settings
    reweighting.lopti_threshold, off by default; 0.4 alone, 0.5 beside advantage reweighting. The
    tokens of the other pass stay in the denominator, as in the authors' code; penalties bear on the
    pass's own tokens.

Effect on metrics
    updates_per_batch is twice optimizer.updates_per_batch; optimizer/loss_tokens is a pass's own.

Other implementations
    The authors' code alone has it.

Do not combine with
    Losses with one term a response; forking tokens, which leave out what the second pass is for.

Source
    arXiv 2505.12929.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.reweightings.base import ReweightingInputs


def lopti(inputs: ReweightingInputs) -> Tensor:
    """One where the token's turn is, else zero, shape (2, B, T)."""
    threshold = inputs.settings.lopti_threshold or 0.0
    rare_BT = inputs.old_logprobs_BT < (math.log(threshold) if threshold else -math.inf)
    return torch.stack([rare_BT, ~rare_BT]).to(inputs.old_logprobs_BT.dtype)
