"""Off-policy sequence masking: bad responses that the learner has left behind are not punished.

Formula
    A response with A < 0 has no policy loss where the mean over its tokens of log(sampler / new)
    exceeds `loss.off_policy_limit`. It composes with any loss; penalties are not masked, and the
    response stays in the denominator. It is judged anew at every update.

Settings
    loss.off_policy_limit, off by default.

Effect on metrics
    correction/stale_rate, the share of responses left out.

Other implementations
    TRL's off_policy_mask_threshold, ms-swift and slime agree.

Do not combine with
    mis_sequence, which leaves out whole responses too, by another measure.

Source
    DeepSeek-V3.2, arXiv 2512.02556.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.losses.base import LossInputs


def stale_responses(inputs: LossInputs[Any], limit: float) -> Tensor:
    """Which responses are left out, bool, (B, 1).

    Args:
        inputs: of single tokens; the mean of a response's advantages has the sign that counts.
        limit: of the mean log(sampler / new), in nats per token.
    """
    moved_B1 = -inputs.response_mean(inputs.log_ratio_to_sampler())
    # Not that of its first token, which a reweighting may have set to zero.
    advantage_B1 = inputs.response_mean(torch.where(inputs.mask_BT, inputs.advantages_BT, 0.0))
    return (advantage_B1 < 0) & (moved_B1 > limit)
