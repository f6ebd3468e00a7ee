"""Clip-Cov: a few of the tokens that take entropy away fastest get no gradient.

Formula
    PPO's clip per token, and 0 for the tokens chosen: cov = (log new - its mean) (A - its mean),
    means over the step's loss tokens; of the tokens with covariance_low < cov < covariance_high
    that PPO's clip leaves live, a share of all loss tokens is drawn, each with equal chance.

Denominator
    Any; token-mean in the authors' runs.

Settings
    share 2e-4 of the loss tokens, rounded down, at least `fewest` where there are so many;
    covariance_low 1, covariance_high 5. clip_low 1 and clip_high 1, as the authors run it: the
    paper's formula has no clip at all. `fewest` 1 is the authors' code, 0 the paper's formula,
    which in a step of fewer than 5,000 tokens chooses none.

Moves
    clip/covariance_rate, the share of tokens chosen; entropy/mean levels off instead of falling.

Elsewhere
    verl's clip_cov agrees, but compares the tokens of a micro-batch, so that the choice depends on
    how a step is split; here it is made once for the whole step. SkyRL weighs advantages before it
    takes the covariance, whose bounds then hardly ever hold.

Not with
    An entropy bonus, KL-Cov or forking tokens: one remedy for the entropy is enough.

Source
    arXiv 2505.22617, Eq. 12 and 13.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags, covariances
from grpodoctor.trainer.config.loss_settings import ClipCov


def choose(inputs: LossInputs[ClipCov], generator: torch.Generator) -> Tensor:
    """Some of the tokens whose covariance lies within the bounds, bool, shape (B, T)."""
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
    """PPO's clip per token, without the tokens chosen."""
    low, high = 1 - inputs.settings.clip_low, 1 + inputs.settings.clip_high
    ratio_BT, advantages_BT = torch.exp(inputs.log_ratio()), inputs.advantages_BT
    loss_BT = torch.maximum(-ratio_BT * advantages_BT, -ratio_BT.clamp(low, high) * advantages_BT)
    return LossTerms(torch.where(inputs.chosen(), 0.0, loss_BT), *_clipped(inputs))


def _clipped(inputs: LossInputs[ClipCov]) -> tuple[Tensor, Tensor]:
    ratio_BT = torch.exp(inputs.log_ratio().detach())
    low, high = 1 - inputs.settings.clip_low, 1 + inputs.settings.clip_high
    return clip_flags(ratio_BT, inputs.advantages_BT, low, high)
