"""RLOO's advantage: each response compared with the mean of the others.

Formula
    reward - mean of the other rewards of its group = G / (G - 1) (reward - group mean).

Settings
    None.

Effect on metrics
    The gradient variance (optimizer/grad_norm) is lower than without a baseline.

Other implementations
    verl and ms-swift agree. TRL's RLOOTrainer adds a KL penalty to the reward by default.

Source
    arXiv 2402.14740.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, centre


def leave_one_out(inputs: AdvantageInputs) -> Tensor:
    """Reward minus the mean of the group's other rewards, shape (B,)."""
    sizes_B = inputs.group_ids_B.bincount()[inputs.group_ids_B]
    return centre(inputs.rewards_B, inputs.group_ids_B) * sizes_B / (sizes_B - 1)
