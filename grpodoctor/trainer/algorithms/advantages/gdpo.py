"""GDPO's advantage: each component of the reward is standardised by itself.

Formula
    s = sum over components of weight x (component standardised within its group), then
    s / (standard deviation of s over the batch + epsilon). The mean of s over the batch is zero by
    construction and not subtracted, so that a group without variance gives exactly 0.

Settings
    component_weights, 1 where none is given; std and epsilon serve both divisions. A task without
    components has its reward for the only one. Weights that the task itself gives its components
    have no part in it.

Effect on metrics
    reward/component/<name>/mean of every component rises, also of those whose scale is small.

Other implementations
    TRL's normalize_then_sum, with the unbiased deviation and 1e-4. verl weighs the statistics of
    the batch by tokens.

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
    standardise,
)


def gdpo(inputs: AdvantageInputs) -> Tensor:
    """The weighted sum of standardised components, scaled over the batch, shape (B,).

    Raises:
        ConfigError: if a weight is given for a component that the reward does not have.
    """
    settings, components = inputs.settings, inputs.components or {"reward": inputs.rewards_B}
    for name in settings.component_weights:
        if name not in components:
            raise ConfigError(
                f"the reward has no component {name[:60]!r}",
                where="advantage.component_weights",
                remedy=f"it has {', '.join(components)}",
            )
    sum_B = torch.zeros_like(inputs.rewards_B)
    for name, values_B in components.items():
        weight = settings.component_weights.get(name, 1.0)
        sum_B = sum_B + weight * standardise(values_B, inputs.group_ids_B, settings)
    return divide(sum_B, batch_deviation(sum_B, settings), settings)
