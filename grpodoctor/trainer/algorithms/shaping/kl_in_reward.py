"""The KL penalty in the reward: drifting from the reference costs the response as a whole.

Formula
    reward - coefficient * sum over the response's tokens of log(old / reference), without a
    gradient. As a part of the advantage its expected gradient is that of KL(new, reference).

Denominator
    None: the sum over the response, one number a response, before the baseline.

Settings
    loss.kl_placement = "reward" with loss.kl_estimator = "k1", the only one allowed there: k2 and
    k3 are never negative, so that as a reward they would punish a response for tokens that became
    less likely, too. loss.kl_coefficient 0.05 in TRL.

Effect on metrics
    kl/reference/k3 stays bounded. reward/kl_penalty is what was taken off; reward/mean and all
    readings of rewards and groups stay those of the task, which the penalty would hide: with it no
    group is without variance.

Other implementations
    TRL's RLOO agrees; verl takes k1 off each token's reward instead.

Do not combine with
    The penalty in the loss, which would count it twice: the placement is one setting. gdpo, which
    standardises every component of the reward by itself, and dcpo_sas, which remembers rewards.

Source
    RLOO, arXiv 2402.14740; on the gradients Tang and Munos, arXiv 2506.09477.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kl_in_reward(
    old_logprobs_BT: Tensor, reference_logprobs_BT: Tensor, mask_BT: Tensor, coefficient: float
) -> Tensor:
    """What is taken off each response's reward, shape (B,), float64, without a gradient.

    Args:
        old_logprobs_BT: under the learner when the batch began.
        reference_logprobs_BT: under the reference.
        mask_BT: generated tokens, bool; other positions may hold anything.
        coefficient: its weight.
    """
    gap_BT = torch.where(mask_BT, old_logprobs_BT.double() - reference_logprobs_BT.double(), 0.0)
    return coefficient * gap_BT.sum(dim=1).detach()
