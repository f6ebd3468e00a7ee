"""Duplicate removal: a response that repeats another of its group token by token is left out.

Formula
    Of identical responses to a prompt the first bears loss and the others do not. Their rewards
    stay in the group's mean and deviation, which would otherwise favour rare responses.

Denominator
    A mean over tokens counts what is left; responses without loss tokens still count where a
    denominator counts responses.

Settings
    rollout.drop_duplicates, off by default. Of identical prompts in a data file the first is kept
    always, and the log says how many were not.

Effect on metrics
    optimizer/loss_tokens falls and optimizer/left_out_rate rises by groups/duplicate_rate, which
    goes on counting them.

Other implementations
    No library does it. DAPO is said to reject repeated responses (No Repeat): neither its paper nor
    its repository does.

Do not combine with
    Nothing. On-policy it biases the gradient against what the policy says most often.

Source
    None: a convention, without a paper.
"""

from __future__ import annotations

import torch
from torch import Tensor


def duplicates(tokens_BT: Tensor, mask_BT: Tensor, group_ids_B: Tensor) -> Tensor:
    """Which responses repeat an earlier one of their group, bool, shape (B,).

    Args:
        tokens_BT: generated ids; positions outside the mask may hold anything.
        mask_BT: generated tokens, bool.
        group_ids_B: responses of one prompt share it.
    """
    seen: set[tuple[int, ...]] = set()
    repeated = []
    for group, ids, mask in zip(
        group_ids_B.tolist(), tokens_BT.tolist(), mask_BT.tolist(), strict=True
    ):
        response = (group, *(each for each, there in zip(ids, mask, strict=True) if there))
        repeated.append(response in seen)
        seen.add(response)
    return torch.tensor(repeated, device=tokens_BT.device)
