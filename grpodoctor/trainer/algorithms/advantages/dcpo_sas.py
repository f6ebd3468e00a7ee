"""DCPO's advantage: a prompt's group is seen beside all its earlier ones.

Formula
    At the i-th visit of a prompt, A_new is the reward standardised within the group and A_total the
    reward standardised by mean and standard deviation of all rewards the prompt has had, these
    included. Of (i - 1)/i A_new + 1/i A_total and 1/i A_new + (i - 1)/i A_total that of smaller
    magnitude. At the first visit all of them are the group's own.

Settings
    std and epsilon serve both divisions; prompts_remembered bounds the memory, which is part of
    every checkpoint. Prompts that hardly ever return gain nothing: this wants data in several
    passes.

Effect on metrics
    advantage/zero_rate falls: a group that is all right or all wrong still teaches where the
    prompt's earlier groups were not.

Other implementations
    The authors' code has the unbiased deviation; its pooled formula is exact in the population form
    alone.

Do not combine with
    Dynamic sampling or filtering of groups, which throw away what this learns from.

Source
    arXiv 2509.02333, section 3.2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, divide, standardise
from grpodoctor.trainer.algorithms.prompt_history import pooled

REMEMBERS_PROMPTS = True


def dcpo_sas(inputs: AdvantageInputs) -> Tensor:
    """Group and history averaged by the number of visits, the smaller of two ways, shape (B,)."""
    ids_B, rewards_B = inputs.group_ids_B, inputs.rewards_B
    new_B = standardise(rewards_B, ids_B, inputs.settings)
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
