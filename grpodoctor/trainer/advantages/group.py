"""GRPO's advantage: standardised within the group."""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.advantages.base import AdvantageInputs, centre, group_mean


def group(inputs: AdvantageInputs) -> Tensor:
    """(reward - group mean) / (group standard deviation + epsilon), shape (B,).

    Source: DeepSeekMath, arXiv 2402.03300, which does not say which standard deviation.
    """
    group_ids_B, settings = inputs.group_ids_B, inputs.settings
    deviations_B = centre(inputs.rewards_B, group_ids_B)
    variance_B = group_mean(deviations_B.square(), group_ids_B)
    if settings.std == "unbiased":
        sizes_B = group_ids_B.bincount()[group_ids_B]
        variance_B = variance_B * sizes_B / (sizes_B - 1)
    # A group of equal rewards has 0 / 0 where epsilon is 0: it teaches nothing, so 0.
    return (deviations_B / (variance_B.sqrt() + settings.epsilon)).masked_fill(deviations_B == 0, 0)
