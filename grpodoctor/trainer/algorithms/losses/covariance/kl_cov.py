"""KL-Cov: penalizes divergence from the old policy on the tokens that reduce entropy the most.

Formula
    -r A per token, r = new / old, without a clip; selected tokens also pay penalty |log r|. The
    selected tokens are the fraction `share` of the step's loss tokens with the largest covariance
    (log new - its mean) (A - its mean), with means over the step's loss tokens.

Denominator
    Any; token-mean in the authors' runs.

Settings
    share 2e-3 (7B models; 2e-4 for 32B), rounded down, but at least `fewest`; penalty 1. The paper
    writes the penalty as a KL divergence; the authors' code computes |log r| of the sampled token,
    and so does this one. `fewest` 1 follows the authors' code, 0 the paper's formula.

Effect on metrics
    clip/covariance_rate is the fraction of selected tokens. entropy/mean levels off. There is no
    clip rate because nothing is clipped.

Other implementations
    verl's kl_cov agrees within a micro-batch, with a default share of 2e-4. SkyRL does not divide
    the penalty by the number of tokens, although it divides the rest of the loss.

Do not combine with
    PPO's clip, which it replaces; an entropy bonus, Clip-Cov or forking tokens.

Source
    arXiv 2505.22617, Eq. 14 and 15.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, covariances
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class KlCov(LossConfig):
    """KL-Cov: the tokens with the highest covariance are held close to the old policy."""

    selects_by_covariance: ClassVar[bool] = True

    kind: Literal["kl_cov"] = "kl_cov"
    aggregation: Aggregation = "token-mean"
    share: float = Field(2e-3, ge=0, le=1)
    """Fraction of the step's loss tokens to select."""
    fewest: int = Field(1, ge=0)
    """Minimum number of tokens to select per step."""
    penalty: float = Field(1.0, ge=0, le=100)
    """Penalty per nat of |log-ratio| on a selected token."""


def select_tokens(inputs: LossInputs[KlCov], _: torch.Generator) -> Tensor:
    """The tokens with the largest covariance, bool, shape (B, T)."""
    mask_BT = inputs.mask_BT
    cov_N = covariances(inputs).masked_fill(~mask_BT, -math.inf).flatten()
    total = int(mask_BT.sum())
    count = min(max(int(inputs.settings.share * total), inputs.settings.fewest), total)
    chosen_N = mask_BT.new_zeros(cov_N.shape)
    chosen_N[cov_N.topk(count).indices] = True
    return chosen_N.view(mask_BT.shape)


def kl_cov(inputs: LossInputs[KlCov]) -> LossTerms:
    """-r A per token, plus penalty |log r| on the selected tokens."""
    log_ratio_BT = inputs.log_ratio()
    loss_BT = -log_ratio_BT.exp() * inputs.advantages_BT
    penalty_BT = inputs.settings.penalty * log_ratio_BT.abs()
    return LossTerms(loss_BT + penalty_BT.where(inputs.selected(), 0.0))
