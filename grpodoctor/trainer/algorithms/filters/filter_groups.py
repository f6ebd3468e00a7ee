"""Zero-gradient filtering: groups whose rewards are all equal leave the batch.

Formula
    A group is learnt from where max(reward) > min(reward); with rollout.variance_of = "correct",
    where some of its responses are right and others wrong.

Denominator
    The rest of the batch: the groups left out count neither as tokens nor as responses or prompts,
    nor in a standard deviation over the batch. What is left is divided among the updates; where
    nothing is left the step takes no update, and says so.

Settings
    rollout.filter_groups, off by default. ScaleRL and Reinforce-Rej filter.

Effect on metrics
    The readings of groups, rewards and lengths speak of all that was generated;
    groups/generated_per_kept and optimizer/left_out_rate say how much was not learnt from, and
    updates_per_batch falls to 0 where nothing was.

Other implementations
    open-instruct's filter_zero_std_samples; prime-rl and SkyRL (dynamic_sampling.type=filter) too.

Do not combine with
    rollout.dynamic_sampling, which serves the same purpose by drawing fresh groups, or an advantage
    that gives groups without variance a signal from elsewhere.

Source
    ScaleRL, arXiv 2510.13786; Reinforce-Rej, arXiv 2504.11343.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import varied_groups


def filter_groups(judged_B: Tensor, group_ids_B: Tensor) -> Tensor:
    """Which responses are learnt from, bool, shape (B,).

    Args:
        judged_B: verdicts, or rewards before a KL penalty, which would differ everywhere.
        group_ids_B: 0 .. number of groups - 1.
    """
    return varied_groups(judged_B, group_ids_B)[group_ids_B]
