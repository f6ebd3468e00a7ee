"""Reinforce-Rej's advantage: the raw reward in groups with reward variance.

Formula
    reward if the group's rewards differ, otherwise 0. No mean, no standard deviation.

Settings
    None. The paper drops all-correct and all-incorrect prompts, also from the denominator.
    rollout.filter_groups does this, and the preset sets it. Without it, these groups stay in the
    denominator with an advantage of 0.

Effect on metrics
    groups/effective_rate is the share of groups that remain. With rewards of 0 and 1, incorrect
    answers are not pushed down.

Other implementations
    The authors' code, with PPO's clip and the mean over tokens.

Source
    arXiv 2504.11343.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, varied_groups


def reinforce_rej(inputs: AdvantageInputs) -> Tensor:
    """The raw reward in groups with variance, otherwise zero, shape (B,)."""
    flat_B = ~varied_groups(inputs.rewards_B, inputs.group_ids_B)[inputs.group_ids_B]
    return inputs.rewards_B.masked_fill(flat_B, 0.0)
