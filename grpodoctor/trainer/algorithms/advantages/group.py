"""GRPO's advantage: standardised within the group.

Formula
    (reward - group mean) / (group standard deviation + epsilon). With the population's deviation
    it is bounded by sqrt(G - 1) for a group of G.

Settings
    std population and epsilon 1e-6. The paper does not say which standard deviation.

Effect on metrics
    advantage/abs_max. It weighs groups of rare success or rare failure up.

Other implementations
    verl, TRL and ms-swift divide by the unbiased deviation, plus 1e-6 or 1e-4. For G = 2, the
    2-GRPO of arXiv 2510.00977, the population's gives 1 and -1, theirs 0.707 and -0.707.

Source
    DeepSeekMath, arXiv 2402.03300.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, standardise


def group(inputs: AdvantageInputs) -> Tensor:
    """Rewards standardised within their groups, shape (B,)."""
    return standardise(inputs.rewards_B, inputs.group_ids_B, inputs.settings)
