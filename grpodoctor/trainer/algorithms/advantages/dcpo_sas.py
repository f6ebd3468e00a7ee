"""DCPO's advantage: compares a prompt's rewards with those of its earlier groups.

Formula
    At the i-th visit of a prompt, A_new is the reward standardized within the group, and A_total
    the reward standardized by mean and standard deviation of all rewards of the prompt so far,
    these included. The advantage is (i - 1)/i A_new + 1/i A_total or 1/i A_new + (i - 1)/i A_total,
    whichever has the smaller magnitude. At the first visit, the advantage is A_new.

Settings
    std and epsilon apply to both divisions. prompts_remembered limits the memory, which is part of
    every checkpoint. The advantage requires several epochs over the data: a prompt that rarely
    returns gains nothing.

Effect on metrics
    advantage/zero_rate falls: an all-correct or all-incorrect group still contributes if the
    prompt's earlier groups were different.

Other implementations
    The authors' code uses the unbiased standard deviation; its pooled formula is exact only in the
    population form.

Do not combine with
    Dynamic sampling or group filters, which discard the groups that this advantage learns from.

Source
    arXiv 2509.02333, section 3.2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, divide, standardize
from grpodoctor.trainer.algorithms.prompt_history import pooled

REMEMBERS_PROMPTS = True


def dcpo_sas(inputs: AdvantageInputs) -> Tensor:
    """The smaller of two averages of group and history, shape (B,)."""
    ids_B, rewards_B = inputs.group_ids_B, inputs.rewards_B
    new_B = standardize(rewards_B, ids_B, inputs.settings)
    if inputs.visits is None:
        return new_B
    groups_G = torch.arange(len(inputs.visits.count_G), device=ids_B.device)
    visits = pooled(inputs.visits.groups(groups_G), rewards_B, ids_B)
    fewer = 1 if inputs.settings.std == "unbiased" else 0
    deviation_G = (visits.squares_G / (visits.count_G - fewer)).sqrt()
    flat_B = (visits.low_G == visits.high_G)[ids_B]
    gaps_B = (rewards_B - visits.mean_G[ids_B]).masked_fill(flat_B, 0.0)
    total_B = divide(gaps_B, deviation_G[ids_B], inputs.settings)
    share_B = 1 / visits.number_G[ids_B]
    first_B = (1 - share_B) * new_B + share_B * total_B
    second_B = share_B * new_B + (1 - share_B) * total_B
    return first_B.where(first_B.abs() <= second_B.abs(), second_B)
