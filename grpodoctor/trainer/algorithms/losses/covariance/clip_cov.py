"""Clip-Cov: drops the gradient of a few tokens that reduce entropy the most.

Formula
    PPO's clip per token, and 0 for selected tokens. cov = (log new - its mean) (A - its mean), with
    means over the step's loss tokens. Tokens that PPO does not clip are eligible if
    covariance_low < cov < covariance_high; a fraction `share` of all loss tokens is drawn uniformly
    from them.

Denominator
    Any; token-mean in the authors' runs.

Settings
    share 2e-4 of the loss tokens, rounded down, but at least `fewest` if that many are eligible;
    covariance_low 1, covariance_high 5; clip_low 1 and clip_high 1, as in the authors' runs (the
    paper's formula has no clip). `fewest` 1 follows the authors' code. With 0, as in the paper's
    formula, a step of fewer than 5,000 tokens selects none.

Effect on metrics
    clip/covariance_rate is the fraction of selected tokens. entropy/mean levels off instead of
    falling.

Other implementations
    verl's clip_cov agrees, but compares tokens within a micro-batch, so the selection depends on
    how the step is split; here it is made once for the whole step. SkyRL weights advantages before
    it computes the covariance, so its bounds are rarely met.

Do not combine with
    An entropy bonus, KL-Cov or forking tokens: use one entropy remedy at a time.

Source
    arXiv 2505.22617, Eq. 12 and 13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import (
    LossInputs,
    LossTerms,
    clip_flags,
    clipped_surrogate,
    covariances,
)
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class ClipCov(LossConfig):
    """Clip-Cov: some tokens with high covariance get no gradient."""

    selects_by_covariance: ClassVar[bool] = True

    kind: Literal["clip_cov"] = "clip_cov"
    aggregation: Aggregation = "token-mean"
    clip_low: float = Field(1.0, ge=0, le=1)
    """The ratio may fall to 1 - clip_low; 1 means no lower bound."""
    clip_high: float = Field(1.0, ge=0, le=10)
    """The ratio may rise to 1 + clip_high."""
    share: float = Field(2e-4, ge=0, le=1)
    """Fraction of the step's loss tokens to select, if that many are eligible."""
    fewest: int = Field(1, ge=0)
    """Minimum number of tokens to select per step, if that many are eligible."""
    covariance_low: float = 1.0
    """Only tokens with a larger covariance are eligible."""
    covariance_high: float = 5.0
    """Only tokens with a smaller covariance are eligible."""


def select_tokens(inputs: LossInputs[ClipCov], generator: torch.Generator) -> Tensor:
    """Draw tokens whose covariance lies within the bounds, bool, shape (B, T)."""
    import torch

    settings, mask_BT = inputs.settings, inputs.mask_BT
    low_BT, high_BT = _clipped(inputs)
    cov_BT = covariances(inputs)
    within_BT = (cov_BT > settings.covariance_low) & (cov_BT < settings.covariance_high)
    eligible_N = (within_BT & mask_BT & ~low_BT & ~high_BT).flatten().nonzero()[:, 0].cpu()
    count = max(int(settings.share * int(mask_BT.sum())), settings.fewest)
    drawn_N = eligible_N[torch.randperm(len(eligible_N), generator=generator)[:count]]
    chosen_N = torch.zeros(mask_BT.numel(), dtype=torch.bool, device=mask_BT.device)
    chosen_N[drawn_N.to(mask_BT.device)] = True
    return chosen_N.view(mask_BT.shape)


def clip_cov(inputs: LossInputs[ClipCov]) -> LossTerms:
    """PPO's clip per token, without the selected tokens."""
    low, high = 1 - inputs.settings.clip_low, 1 + inputs.settings.clip_high
    loss_BT = clipped_surrogate(inputs.log_ratio().exp(), inputs.advantages_BT, low, high)
    return LossTerms(loss_BT.where(~inputs.selected(), 0.0), *_clipped(inputs))


def _clipped(inputs: LossInputs[ClipCov]) -> tuple[Tensor, Tensor]:
    low, high = 1 - inputs.settings.clip_low, 1 + inputs.settings.clip_high
    return clip_flags(inputs.log_ratio().detach().exp(), inputs.advantages_BT, low, high)
