"""M2PO: masks the outliers among stale tokens until their second moment is small.

Formula
    -M r A per token, r = new / sampler. A token moves away if A > 0 and r > 1, or A < 0 and r < 1.
    Of the tokens that move away, those with the largest (log r)^2 have M = 0, as few as needed for
    the mean of (log r)^2 over the others to be at most second_moment_limit. All other tokens have
    M = 1. M has no gradient and is selected among all tokens of the step, at every update.

Denominator
    token-mean: all loss tokens of the step, masked ones included.

Settings
    second_moment_limit 0.04 in all of the paper's experiments, with the advantage `group`.

Effect on metrics
    clip/low_rate and clip/high_rate are the fractions of masked tokens. They stay far below those
    of PPO's clip on stale samples: 0.06 % instead of 1.22 % in the paper, at a staleness of 256
    updates.

Other implementations
    The paper and its blog describe a mask. The authors' code bounds r instead, by the one width at
    which the mean of the bounded (log r)^2 over the tokens that move away meets the limit, and
    never below 0.7 or above 1.5. AReaL masks among all tokens, by old / sampler instead of new /
    sampler, so its mask does not change between updates.

Do not combine with
    A correction or PPO's clip: the ratio is relative to the sampler, and the mask is the trust
    region.

Source
    arXiv 2510.01161; authors' code, github.com/Infini-AI-Lab/M2PO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, clip_flags
from grpodoctor.trainer.algorithms.losses.settings import Aggregation, LossConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class M2po(LossConfig):
    """M2PO: a bound on the second moment of the log-ratio to the sampler."""

    anchored_on_sampler: ClassVar[bool] = True

    kind: Literal["m2po"] = "m2po"
    aggregation: Aggregation = "token-mean"
    second_moment_limit: float = Field(0.04, gt=0, le=100)
    """Largest mean of log(learner / sampler) squared over the unmasked tokens that move away."""


def select_tokens(inputs: LossInputs[M2po], _: torch.Generator) -> Tensor:
    """The tokens to mask, bool, shape (B, T)."""
    log_ratio_BT = inputs.log_ratio_to_sampler().detach()
    low_BT, high_BT = clip_flags(log_ratio_BT, inputs.advantages_BT, 0.0, 0.0)
    away_BT = (low_BT | high_BT) & inputs.mask_BT
    squares_N, order_N = log_ratio_BT[away_BT].double().square().sort()
    count_N = squares_N.new_ones(len(squares_N)).cumsum(0)
    beyond_N = squares_N.cumsum(0) / count_N > inputs.settings.second_moment_limit
    chosen_BT = inputs.mask_BT.new_zeros(inputs.mask_BT.shape)
    chosen_BT[away_BT] = beyond_N.new_zeros(len(beyond_N)).scatter(0, order_N, beyond_N)
    return chosen_BT


def m2po(inputs: LossInputs[M2po]) -> LossTerms:
    """-r A per token, without the selected tokens."""
    loss_BT = -inputs.log_ratio_to_sampler().exp() * inputs.advantages_BT
    chosen_BT, negative_BT = inputs.selected(), inputs.advantages_BT < 0
    return LossTerms(
        loss_BT.where(~chosen_BT, 0.0), chosen_BT & negative_BT, chosen_BT & ~negative_BT
    )
