"""REINFORCE++-Baseline: centered within the group, then whitened over the tokens of the batch.

Formula
    a = reward - group mean. Each response counts with its number of loss tokens n in the mean
    m = sum of n a / sum of n and the variance v = sum of n (a - m)^2 / sum of n. The advantage is
    (a - m) / sqrt(max(v, 1e-8)).

Settings
    None. ProRL v2 uses it with dynamic sampling: the preset prorl_v2.

Effect on metrics
    The scale of advantages does not depend on how much prompts differ in difficulty. If correct and
    incorrect responses differ in length, m is not 0: a group without variance then has an advantage
    of -m / sqrt(v), the same for all of its responses.

Other implementations
    NeMo RL's reinforce_plus_plus with minus_baseline agrees. verl's reinforce_plus_plus_baseline
    whitens over the same tokens, with the unbiased variance. OpenRLHF's reinforce_baseline whitens
    over tokens as well.

Do not combine with
    Groups without variance: filter or resample them, so that they get no advantage.

Source
    arXiv 2501.03262; the recipe ProRL v2, NeMo RL, examples/configs/prorlv2.v2.yaml.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, centre

_SMALLEST_VARIANCE = 1e-8


def reinforce_plus_plus_baseline(inputs: AdvantageInputs) -> Tensor:
    """Centered rewards, whitened with one weight per loss token, shape (B,)."""
    centered_B = centre(inputs.rewards_B, inputs.group_ids_B)
    lengths_B = torch.ones_like(centered_B)
    if inputs.lengths_B is not None:
        lengths_B = inputs.lengths_B.to(centered_B)
    share_B = lengths_B / lengths_B.sum().clamp(min=1)
    mean = (share_B * centered_B).sum()
    variance = (share_B * (centered_B - mean).square()).sum()
    return (centered_B - mean) / variance.clamp(min=_SMALLEST_VARIANCE).sqrt()
