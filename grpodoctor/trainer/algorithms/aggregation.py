"""Denominators: the weight of each token in the loss of an optimizer step.

The loss is the weighted sum over tokens. The weights are computed once for the whole optimizer
step, not per micro-batch: the mean of micro-batch means differs from the overall mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The loss tokens of one optimizer step."""

    mask_BT: Tensor
    """bool. A response without loss tokens still counts as a response."""
    group_ids_B: Tensor
    """Equal for responses to the same prompt."""
    length_limit: int
    """Maximum response length; independent of the padding."""


def _sequence_mean(tokens: StepTokens) -> Tensor:
    lengths_B = tokens.mask_BT.sum(dim=1).clamp(min=1)
    return (1 / (lengths_B.double() * len(lengths_B)))[:, None].expand(tokens.mask_BT.shape)


def _token_mean(tokens: StepTokens) -> Tensor:
    total = tokens.mask_BT.sum().clamp(min=1)
    return (1 / total.double()).expand(tokens.mask_BT.shape)


def _prompt_mean(tokens: StepTokens) -> Tensor:
    _, index_B = torch.unique(tokens.group_ids_B, return_inverse=True)
    lengths_B = tokens.mask_BT.sum(dim=1)
    totals_G = torch.bincount(index_B, weights=lengths_B.double()).clamp(min=1)
    return (1 / (totals_G * len(totals_G)))[index_B][:, None].expand(tokens.mask_BT.shape)


def _constant(tokens: StepTokens) -> Tensor:
    share = 1 / (len(tokens.mask_BT) * tokens.length_limit)
    return tokens.mask_BT.new_full(tokens.mask_BT.shape, share, dtype=torch.float64)


def _sequence_mean_token_sum(tokens: StepTokens) -> Tensor:
    share = 1 / len(tokens.mask_BT)
    return tokens.mask_BT.new_full(tokens.mask_BT.shape, share, dtype=torch.float64)


def _sequence_sum_token_mean(tokens: StepTokens) -> Tensor:
    return _sequence_mean(tokens) * len(tokens.mask_BT)


AGGREGATIONS: dict[str, Callable[[StepTokens], Tensor]] = {
    "sequence-mean": _sequence_mean,  # GRPO: mean over responses of token means
    "token-mean": _token_mean,  # DAPO as implemented: mean over all tokens
    "prompt-mean": _prompt_mean,  # DAPO Eq. 8 literally: mean over prompts of token means
    "constant": _constant,  # Dr. GRPO: divided by responses times the length limit
    "sequence-mean-token-sum": _sequence_mean_token_sum,  # REINFORCE: mean of token sums
    "sequence-sum-token-mean": _sequence_sum_token_mean,  # DCPO: sum over responses of token means
}


def token_weights(kind: str, tokens: StepTokens) -> Tensor:
    """The weight of each token, shape (B, T), float64, zero outside the mask.

    The loss of the step is the sum of weight times token loss.
    """
    return torch.where(tokens.mask_BT, AGGREGATIONS[kind](tokens), 0.0)
