"""ScaleRL's advantage: centred within the group, then scaled over the batch.

Formula
    a / (standard deviation over the batch of a + epsilon), a = reward - group mean.

Settings
    std population, epsilon 1e-6; the paper does not say which standard deviation.

Effect on metrics
    advantage/abs_max: its scale no longer depends on how far prompts differ in difficulty, which
    enters the deviation of batch_std.

Other implementations
    TRL's scale_rewards="batch" is batch_std: it divides by the deviation of the raw rewards.

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
    """Centred within the group, divided by the batch's deviation of just that, shape (B,)."""
    centred_B = centre(inputs.rewards_B, inputs.group_ids_B)
    return divide(centred_B, batch_deviation(centred_B, inputs.settings), inputs.settings)
