"""The KL penalty in the reward: subtracts a response's divergence from the reference.

Formula
    reward - coefficient * sum over the response's tokens of log(old / reference), without gradient.
    As part of the advantage, its expected gradient is that of KL(new, reference).

Denominator
    None: the sum over the response, one number per response, before the baseline.

Settings
    loss.kl_placement = "reward" with loss.kl_estimator = "k1", the only estimator allowed there: k2
    and k3 are never negative, so in the reward they would also punish tokens that became less
    likely. loss.kl_coefficient 0.05 in TRL.

Effect on metrics
    kl/reference/k3 stays bounded. reward/kl_penalty is the amount subtracted. reward/mean and all
    metrics of rewards and groups describe the task's reward, because with the penalty every group
    has variance.

Other implementations
    TRL's RLOO agrees. verl subtracts k1 from each token's reward instead.

Do not combine with
    The penalty in the loss, which would count it twice: the placement is one setting. gdpo, which
    standardizes every reward component separately, and dcpo_sas, which remembers rewards.

Source
    RLOO, arXiv 2402.14740; on the gradients Tang and Munos, arXiv 2506.09477.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kl_in_reward(
    old_logprobs_BT: Tensor, reference_logprobs_BT: Tensor, mask_BT: Tensor, coefficient: float
) -> Tensor:
    """The amount to subtract from each reward, shape (B,), float64, without gradient."""
    gap_BT = torch.where(mask_BT, old_logprobs_BT.double() - reference_logprobs_BT.double(), 0.0)
    return coefficient * gap_BT.sum(dim=1).detach()
