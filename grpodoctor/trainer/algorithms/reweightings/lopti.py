"""Lopti: trains the unlikely tokens of a batch first, then the others.

Formula
    Two passes over the batch, each with all its updates. In the first, only tokens with an old
    probability below lopti_threshold have an advantage, in the second only the others. The old
    log-probabilities remain those from before the first pass.

Settings
    reweighting.lopti_threshold, off by default; 0.4 alone, 0.5 with advantage reweighting. The
    tokens of the other pass stay in the denominator, as in the authors' code; penalties apply to
    the pass's own tokens.

Effect on metrics
    updates_per_batch is twice optimizer.updates_per_batch. optimizer/loss_tokens counts the tokens
    of one pass.

Other implementations
    Only the authors' code.

Do not combine with
    Losses with one term per response; forking tokens, which mask the tokens of the second pass.

Source
    arXiv 2505.12929.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.reweightings.base import ReweightingInputs


def lopti(inputs: ReweightingInputs) -> Tensor:
    """1 for the tokens of each pass, otherwise 0, shape (2, B, T)."""
    threshold = inputs.settings.lopti_threshold or 0.0
    rare_BT = inputs.old_logprobs_BT < (math.log(threshold) if threshold else -math.inf)
    return torch.stack([rare_BT, ~rare_BT]).to(inputs.old_logprobs_BT.dtype)
