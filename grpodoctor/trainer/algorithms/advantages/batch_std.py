"""LitePPO's advantage: the mean of the group, the standard deviation of the batch.

Formula
    (reward - group mean) / (standard deviation of all rewards of the batch + epsilon).

Settings
    std population, epsilon 1e-6.

Effect on metrics
    advantage/abs_max: groups with rare success no longer weigh more than balanced ones.

Other implementations
    TRL's scale_rewards="batch", with the unbiased standard deviation and epsilon 1e-4. verl's
    closest, reinforce_plus_plus_baseline, weights the statistics by tokens and centers once more.

Source
    arXiv 2508.08221.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import (
    AdvantageInputs,
    batch_deviation,
    centre,
    divide,
)


def batch_std(inputs: AdvantageInputs) -> Tensor:
    """Centered within the group, divided by the deviation of the batch's rewards, shape (B,)."""
    deviation = batch_deviation(inputs.rewards_B, inputs.settings)
    return divide(centre(inputs.rewards_B, inputs.group_ids_B), deviation, inputs.settings)
