"""Off-policy sequence masking: excludes stale responses with a negative advantage from the loss.

Formula
    A response with A < 0 has no policy loss if the mean over its tokens of log(sampler / new)
    exceeds `loss.off_policy_limit`. It works with any loss. Penalties are not masked, and the
    response stays in the denominator. It is evaluated again at every update.

Settings
    loss.off_policy_limit, off by default.

Effect on metrics
    correction/stale_rate is the fraction of masked responses.

Other implementations
    TRL's off_policy_mask_threshold, ms-swift and slime agree.

Do not combine with
    mis_sequence, which masks whole responses too, by another measure.

Source
    DeepSeek-V3.2, arXiv 2512.02556.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.losses.base import LossInputs


def stale_responses(inputs: LossInputs[Any], limit: float) -> Tensor:
    """The masked responses, bool, (B, 1).

    Args:
        inputs: token-level; the sign of a response is that of its mean advantage.
        limit: on the mean log(sampler / new), in nats per token.
    """
    moved_B1 = -inputs.response_mean(inputs.log_ratio_to_sampler())
    # The first token's advantage does not suffice: a reweighting may have set it to zero.
    advantage_B1 = inputs.response_mean(torch.where(inputs.mask_BT, inputs.advantages_BT, 0.0))
    return (advantage_B1 < 0) & (moved_B1 > limit)
