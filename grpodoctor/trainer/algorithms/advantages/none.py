"""No baseline: the advantage is the reward itself.

Formula
    reward.

Settings
    None.

Effect on metrics
    optimizer/grad_norm has the highest variance of all advantages. Groups without reward variance
    contribute too.

Other implementations
    Textbook REINFORCE.

Source
    Williams 1992, Simple statistical gradient-following algorithms.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs


def none(inputs: AdvantageInputs) -> Tensor:
    """The reward, shape (B,)."""
    return inputs.rewards_B
