"""GDPO's advantage: each reward component is standardized separately.

Formula
    s = sum over components of weight x (component standardized within its group), then
    s / (standard deviation of s over the batch + epsilon). The mean of s over the batch is zero by
    construction and is not subtracted, so a group without variance gives exactly 0.

Settings
    component_weights, 1 by default; std and epsilon apply to both divisions. A task without
    components has its reward as the only component. The task's own component weights have no
    effect.

Effect on metrics
    reward/component/<name>/mean rises for every component, including those with a small scale.

Other implementations
    TRL's normalize_then_sum, with the unbiased standard deviation and epsilon 1e-4. verl weights
    the batch statistics by tokens.

Source
    arXiv 2601.05242.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.algorithms.advantages.base import (
    AdvantageInputs,
    batch_deviation,
    divide,
    standardize,
)


def gdpo(inputs: AdvantageInputs) -> Tensor:
    """The weighted sum of standardized components, scaled over the batch, shape (B,).

    Raises:
        ConfigError: if a weight names a component that the reward does not have.
    """
    settings, components = inputs.settings, inputs.components or {"reward": inputs.rewards_B}
    for name in settings.component_weights:
        if name not in components:
            raise ConfigError(
                f"the reward has no component {name[:60]!r}",
                where="advantage.component_weights",
                remedy=f"use one of {', '.join(components)}",
            )
    sum_B = torch.zeros_like(inputs.rewards_B)
    for name, values_B in components.items():
        weight = settings.component_weights.get(name, 1.0)
        sum_B = sum_B + weight * standardize(values_B, inputs.group_ids_B, settings)
    return divide(sum_B, batch_deviation(sum_B, settings), settings)
