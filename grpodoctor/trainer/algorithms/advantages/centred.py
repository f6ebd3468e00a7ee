"""Dr. GRPO's advantage: no division by the standard deviation.

Formula
    reward - group mean.

Settings
    None.

Effect on metrics
    advantage/abs_max is lower than with `group`. Groups with rare success weigh less. The gradient
    has another scale; tune the learning rate.

Other implementations
    TRL's loss_type="dr_grpo" keeps the standard deviation unless scale_rewards is also off. Olmo 3
    and MiniRL use this advantage too.

Source
    arXiv 2503.20783.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, centre


def centred(inputs: AdvantageInputs) -> Tensor:
    """Reward minus the mean reward of the group, shape (B,)."""
    return centre(inputs.rewards_B, inputs.group_ids_B)
