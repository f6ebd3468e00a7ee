"""Duplicate removal: masks a response that repeats an earlier one of its group token by token.

Formula
    Of identical responses to a prompt, only the first is in the loss. All rewards stay in the
    group's mean and standard deviation, which would otherwise favor rare responses.

Denominator
    A mean over tokens counts the remaining tokens. Masked responses still count if the denominator
    counts responses.

Settings
    rollout.drop_duplicates, off by default. Identical prompts in a data file are always reduced to
    the first, and the log reports how many were dropped.

Effect on metrics
    optimizer/loss_tokens falls and optimizer/left_out_rate rises by groups/duplicate_rate, which
    still counts the duplicates.

Other implementations
    No library has it. Some sources state that DAPO rejects repeated responses (No Repeat);
    neither its paper nor its repository does.

Do not combine with
    No conflict. On-policy it biases the gradient against the policy's most likely responses.

Source
    None: a convention without a paper.
"""

from __future__ import annotations

import torch
from torch import Tensor


def duplicates(tokens_BT: Tensor, mask_BT: Tensor, group_ids_B: Tensor) -> Tensor:
    """Responses that repeat an earlier one of their group, bool, shape (B,)."""
    seen: set[tuple[int, ...]] = set()
    repeated = []
    for group, ids, mask in zip(
        group_ids_B.tolist(), tokens_BT.tolist(), mask_BT.tolist(), strict=True
    ):
        response = (group, *(token for token, kept in zip(ids, mask, strict=True) if kept))
        repeated.append(response in seen)
        seen.add(response)
    return torch.tensor(repeated, device=tokens_BT.device)
