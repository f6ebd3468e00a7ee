"""Forking tokens (80/20): trains only the tokens with the highest entropy.

Formula
    1 for tokens whose entropy is at least the (1 - forking_share) quantile over the batch's loss
    tokens, otherwise 0. The denominator keeps all tokens, as in the paper.

Settings
    reweighting.forking_share, off by default; 0.2 in the paper. The entropy is the learner's at the
    start of the batch, so every update of a batch has the same tokens.

Effect on metrics
    advantage/token_weight is the fraction of trained tokens. entropy/fork_tokens and
    clip/fork_token_rate describe the same tokens.

Other implementations
    TRL's top_entropy_quantile uses the entropy under the current parameters and the quantile over
    one micro-batch on all ranks. In TRL and here, penalties apply to every token.

Do not combine with
    Another entropy remedy (a bonus, Clip-Cov, KL-Cov); losses with one term per response; advantage
    reweighting and Lopti, which favor the other tokens. The paper combines it with DAPO's
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
    """1 for the tokens with the highest entropy, otherwise 0, shape (1, B, T)."""
    entropy_BT, share = inputs.entropy_BT, inputs.settings.forking_share or 1.0
    entropies_N = entropy_BT[inputs.mask_BT]
    if not len(entropies_N):
        return torch.zeros_like(entropy_BT)[None]
    # torch.quantile fails for more than 16 million elements.
    threshold = float(np.quantile(entropies_N.cpu().numpy(), 1 - share))
    return (entropy_BT >= threshold).to(entropy_BT.dtype)[None]
