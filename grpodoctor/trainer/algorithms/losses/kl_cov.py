"""KL-Cov: the tokens that take entropy away fastest are held to the old policy.

Formula
    -r A per token, r = new / old, without any clip; the tokens chosen pay penalty |log r| beside.
    Chosen are the `share` of the step's loss tokens with the largest covariance
    (log new - its mean) (A - its mean), means over the step's loss tokens.

Denominator
    Any; token-mean in the authors' runs.

Settings
    share 2e-3 (7B models; 2e-4 for 32B), rounded down, at least `fewest`; penalty 1. The paper
    writes the penalty as a KL divergence, the authors compute |log r| of the sampled token, and so
    do we. `fewest` 1 is the authors' code, 0 the paper's formula.

Moves
    clip/covariance_rate, the share of tokens chosen; entropy/mean levels off. There is no clip
    rate: nothing is clipped.

Elsewhere
    verl's kl_cov agrees within a micro-batch, with a share of 2e-4 by default. In SkyRL the penalty
    is not divided by the number of tokens as the rest of the loss is.

Not with
    PPO's clip, which it replaces; an entropy bonus, Clip-Cov or forking tokens.

Source
    arXiv 2505.22617, Eq. 14 and 15.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, covariances
from grpodoctor.trainer.config.loss_settings import KlCov


def choose(inputs: LossInputs[KlCov], _: torch.Generator) -> Tensor:
    """The tokens with the largest covariance, bool, shape (B, T)."""
    mask_BT = inputs.mask_BT
    cov_N = covariances(inputs).masked_fill(~mask_BT, -torch.inf).flatten()
    total = int(mask_BT.sum())
    count = min(max(int(inputs.settings.share * total), inputs.settings.fewest), total)
    chosen_N = torch.zeros_like(cov_N, dtype=torch.bool)
    chosen_N[cov_N.topk(count).indices] = True
    return chosen_N.view(mask_BT.shape)


def kl_cov(inputs: LossInputs[KlCov]) -> LossTerms:
    """-r A per token, and |log r| beside on the tokens chosen."""
    log_ratio_BT = inputs.log_ratio()
    loss_BT = -torch.exp(log_ratio_BT) * inputs.advantages_BT
    held_BT = inputs.settings.penalty * log_ratio_BT.abs()
    return LossTerms(loss_BT + torch.where(inputs.chosen(), held_BT, 0.0))
