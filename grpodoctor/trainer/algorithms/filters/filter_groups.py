"""Zero-gradient filtering: drops groups whose rewards are all equal from the batch.

Formula
    A group is trained on if max(reward) > min(reward); with rollout.variance_of = "correct", if
    some of its responses are correct and others incorrect.

Denominator
    The remaining batch: dropped groups count neither as tokens nor as responses or prompts, nor in
    a standard deviation over the batch. The remaining groups are divided among the updates. If no
    group remains, the step makes no update and reports this.

Settings
    rollout.filter_groups, off by default. ScaleRL and Reinforce-Rej filter.

Effect on metrics
    Metrics of groups, rewards and lengths cover all generated responses.
    groups/generated_per_kept and optimizer/left_out_rate show how much was dropped;
    updates_per_batch falls to 0 if all groups were dropped.

Other implementations
    open-instruct's filter_zero_std_samples; prime-rl and SkyRL (dynamic_sampling.type=filter).

Do not combine with
    rollout.dynamic_sampling, which solves the same problem by drawing new groups, or an advantage
    that gives groups without variance a signal from elsewhere.

Source
    ScaleRL, arXiv 2510.13786; Reinforce-Rej, arXiv 2504.11343.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import varied_groups


def filter_groups(judged_B: Tensor, group_ids_B: Tensor) -> Tensor:
    """The responses to train on, bool, shape (B,).

    `judged_B` is the correctness, or the reward before a KL penalty, which would always differ.
    """
    return varied_groups(judged_B, group_ids_B)[group_ids_B]
