"""No baseline: the reward itself is the advantage.

Formula
    reward.

Settings
    None.

Effect on metrics
    optimizer/grad_norm has the largest variance of all; groups without variance in reward push
    too.

Other implementations
    The textbook's REINFORCE.

Source
    Williams 1992, Simple statistical gradient-following algorithms.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs


def none(inputs: AdvantageInputs) -> Tensor:
    """The reward, shape (B,)."""
    return inputs.rewards_B
