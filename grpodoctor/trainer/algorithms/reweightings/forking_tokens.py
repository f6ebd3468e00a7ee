"""Forking tokens (80/20): only where the policy really chooses is it taught.

Formula
    1 for tokens whose entropy is at least the (1 - forking_share) quantile over the batch's loss
    tokens, else 0. The denominator keeps all tokens, as in the paper.

Settings
    reweighting.forking_share, off by default; 0.2 in the paper. The entropy is the learner's when
    the batch began, so that every update of a batch has the same tokens.

Effect on metrics
    advantage/token_weight, here the share of tokens that learn; entropy/fork_tokens and
    clip/fork_token_rate tell of the same tokens.

Other implementations
    TRL's top_entropy_quantile takes the entropy under the current parameters and the quantile over
    what one micro-batch holds on all ranks. Penalties bear on every token there and here.

Do not combine with
    Another remedy for the entropy (a bonus, Clip-Cov, KL-Cov); losses with one term a response;
    advantage reweighting and Lopti, which favour the others. The paper runs it with DAPO's
    clip-higher.

Source
    arXiv 2506.01939.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.reweightings.base import ReweightingInputs


def forking_tokens(inputs: ReweightingInputs) -> Tensor:
    """One for the tokens of highest entropy, else zero, shape (1, B, T)."""
    entropy_BT, share = inputs.entropy_BT, inputs.settings.forking_share or 1.0
    entropies_N = entropy_BT[inputs.mask_BT]
    if not len(entropies_N):
        return torch.zeros_like(entropy_BT)[None]
    # By numpy: torch's quantile refuses more than sixteen million elements.
    threshold = float(np.quantile(entropies_N.cpu().numpy(), 1 - share))
    return (entropy_BT >= threshold).to(entropy_BT.dtype)[None]
