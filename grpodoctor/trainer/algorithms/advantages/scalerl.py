"""ScaleRL's advantage: centered within the group, then scaled over the batch.

Formula
    a / (standard deviation over the batch of a + epsilon), a = reward - group mean.

Settings
    std population, epsilon 1e-6; the paper does not specify the standard deviation.

Effect on metrics
    advantage/abs_max: its scale does not depend on how much prompts differ in difficulty, unlike in
    batch_std.

Other implementations
    TRL's scale_rewards="batch" is batch_std: it divides by the standard deviation of the raw
    rewards.

Source
    arXiv 2510.13786.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import (
    AdvantageInputs,
    batch_deviation,
    centre,
    divide,
)


def scalerl(inputs: AdvantageInputs) -> Tensor:
    """Centered within the group, divided by the batch deviation of the result, shape (B,)."""
    centered_B = centre(inputs.rewards_B, inputs.group_ids_B)
    return divide(centered_B, batch_deviation(centered_B, inputs.settings), inputs.settings)
