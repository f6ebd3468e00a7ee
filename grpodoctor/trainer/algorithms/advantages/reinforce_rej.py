"""Reinforce-Rej's advantage: the raw reward, of groups that have variance in it.

Formula
    reward where the group's rewards differ, else 0. No mean, no standard deviation.

Settings
    None. The paper drops the prompts that are all right or all wrong, out of the denominator as
    well: rollout.filter_groups does, and the preset sets it. Without it they stay in the
    denominator, with an advantage of 0.

Effect on metrics
    groups/effective_rate says how much is left; with rewards of 0 and 1 wrong answers push nothing
    down.

Other implementations
    The authors' code, with PPO's clip and the mean over tokens.

Source
    arXiv 2504.11343.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, varied_groups


def reinforce_rej(inputs: AdvantageInputs) -> Tensor:
    """The raw reward in groups with variance, else zero, shape (B,)."""
    flat_B = ~varied_groups(inputs.rewards_B, inputs.group_ids_B)[inputs.group_ids_B]
    return inputs.rewards_B.masked_fill(flat_B, 0.0)
