"""How the tokens of an optimizer step are weighed against each other.

A loss is the weighted sum of its tokens. The weights are made once from the whole optimizer step,
never from a micro-batch: the mean of micro-batch means is another quantity than the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The loss-bearing tokens of one optimizer step."""

    mask_BT: Tensor
    """bool. A response without any counts among the responses all the same."""
    group_ids_B: Tensor
    """Responses of one prompt share it."""
    length_limit: int
    """The generation budget: the same at every step, whatever the padding."""


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
    "sequence-mean": _sequence_mean,  # GRPO: of responses, each the mean of its tokens
    "token-mean": _token_mean,  # DAPO as implemented: of all tokens
    "prompt-mean": _prompt_mean,  # DAPO Eq. 8 to the letter: of prompts, each a mean of tokens
    "constant": _constant,  # Dr. GRPO: over responses times the length limit
    "sequence-mean-token-sum": _sequence_mean_token_sum,  # REINFORCE: a response is one action
    "sequence-sum-token-mean": _sequence_sum_token_mean,  # DCPO: the sum of the response means
}


def token_weights(kind: str, tokens: StepTokens) -> Tensor:
    """What each token counts, shape (B, T), float64, zero outside the mask.

    The loss of the step is the sum of weight times per-token loss.
    """
    return torch.where(tokens.mask_BT, AGGREGATIONS[kind](tokens), 0.0)
