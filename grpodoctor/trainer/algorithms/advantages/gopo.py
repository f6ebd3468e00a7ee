"""GOPO's advantage: only the order of the rewards within a group matters.

Formula
    2 - 4 (rank - 1) / (G - 1): the best of G responses, rank 1, gets 2 and the worst gets -2.

Settings
    With ties average, equal rewards share the mean of their ranks, so a group without variance
    gives exactly 0. The paper does not mention ties. ties position follows its code, which ranks
    equal rewards by their position, so even a group without variance gets nonzero advantages.

Effect on metrics
    advantage/abs_max is 2 in every group. Outliers of a reward model have no extra weight.

Other implementations
    No library has it.

Source
    arXiv 2602.03876.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs


def gopo(inputs: AdvantageInputs) -> Tensor:
    """Linear in the rank within the group, from 2 to -2, shape (B,)."""
    rewards_B, ids_B = inputs.rewards_B, inputs.group_ids_B
    peers_BB = ids_B[:, None] == ids_B
    better_B = (peers_BB & (rewards_B > rewards_B[:, None])).sum(dim=1)
    equal_BB = peers_BB & (rewards_B == rewards_B[:, None])
    if inputs.settings.ties == "average":
        above_B = better_B + (equal_BB.sum(dim=1) - 1) / 2
    else:
        above_B = better_B + torch.tril(equal_BB, diagonal=-1).sum(dim=1)
    return (2 - 4 * above_B / (peers_BB.sum(dim=1) - 1)).to(rewards_B.dtype)
