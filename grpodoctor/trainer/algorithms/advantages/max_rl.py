"""MaxRL: centered rewards over the group's mean, which weights hard prompts as likelihood does.

Formula
    (reward - group mean) / group mean, and 0 for a group whose mean is not above 0. With rewards 0
    and 1 and a success rate p, the sum over a group's log-probability gradients then estimates the
    gradient of log p, truncated at the order of the group size, instead of that of p.

Settings
    None. The paper uses rewards of 0 and 1 and takes on-policy steps: the preset max_rl.

Effect on metrics
    advantage/abs_max rises to the group size minus 1 where one response of a group is correct. Hard
    prompts dominate the gradient; pass_at_k falls less than with `group`.

Other implementations
    prime-rl's max_rl is the same. SkyRL's maxrl adds 1e-6 to the mean, so it also divides negative
    means, and gives a group of one its own reward.

Do not combine with
    Negative rewards, such as -1 and 1 or a soft overlong punishment: the mean is then not a success
    rate. A KL penalty in the reward, for the same reason.

Source
    arXiv 2602.02710.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, centre, group_mean


def max_rl(inputs: AdvantageInputs) -> Tensor:
    """Reward minus the group mean, over the group mean, shape (B,)."""
    mean_B = group_mean(inputs.rewards_B, inputs.group_ids_B)
    solved_B = mean_B > 0
    centered_B = centre(inputs.rewards_B, inputs.group_ids_B)
    return (centered_B / mean_B.where(solved_B, 1.0)).where(solved_B, 0.0)
