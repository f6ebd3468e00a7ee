"""GRPO's advantage: rewards standardized within the group.

Formula
    (reward - group mean) / (group standard deviation + epsilon). With the population standard
    deviation, its absolute value is at most sqrt(G - 1) for a group of G.

Settings
    std population and epsilon 1e-6. The paper does not specify the standard deviation.

Effect on metrics
    advantage/abs_max. Groups with rare success or rare failure weigh more.

Other implementations
    verl, TRL and ms-swift divide by the unbiased standard deviation plus 1e-6 or 1e-4. For G = 2,
    the 2-GRPO of arXiv 2510.00977, the population standard deviation gives 1 and -1, theirs gives
    0.707 and -0.707.

Source
    DeepSeekMath, arXiv 2402.03300.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, standardize


def group(inputs: AdvantageInputs) -> Tensor:
    """Rewards standardized within their groups, shape (B,)."""
    return standardize(inputs.rewards_B, inputs.group_ids_B, inputs.settings)
