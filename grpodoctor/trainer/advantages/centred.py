"""Dr. GRPO's advantage: no division by the standard deviation."""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.advantages.base import AdvantageInputs, centre


def centred(inputs: AdvantageInputs) -> Tensor:
    """Reward minus the mean reward of the group, shape (B,). Source: arXiv 2503.20783."""
    return centre(inputs.rewards_B, inputs.group_ids_B)
