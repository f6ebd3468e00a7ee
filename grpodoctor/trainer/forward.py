"""The learner's view of a batch: logits at the response positions, and how a batch is laid out.

    tokens_BL     [pad pad p p p | r r r E pad]
    attention_BL  [ 0   0  1 1 1 | 1 1 1 1  0 ]
                   prompt_width    T

Prompts are padded on the left, so that all responses begin in the same column. Positions are given
explicitly and count real tokens only, so that padding changes no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def positions(attention_BL: Tensor) -> Tensor:
    """The position of each token among the real tokens of its row, shape (B, L)."""
    return (attention_BL.long().cumsum(dim=1) - 1).clamp_(min=0)


def response_logits(
    model: PreTrainedModel, tokens_BL: Tensor, attention_BL: Tensor, prompt_width: int
) -> Tensor:
    """Logits of every response token given what stands before it; differentiable.

    Args:
        model: a causal language model of transformers.
        tokens_BL: left-padded prompts, then responses.
        attention_BL: true where a token is real.
        prompt_width: columns of the prompts; the response has the other T = L - prompt_width.

    Returns:
        Logits of shape (B, T, V) in the model's dtype; those of the prompt are never computed.
    """
    width = tokens_BL.shape[1]
    output = model(
        input_ids=tokens_BL[:, :-1],
        attention_mask=attention_BL[:, :-1].long(),
        position_ids=positions(attention_BL[:, :-1]),
        logits_to_keep=width - prompt_width,
        use_cache=False,
    )
    logits: Tensor = output.logits
    return logits


def pack_left(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Pad rows of ids on the left.

    Returns:
        Tokens and attention (bool), both of shape (B, L), L the longest row.
    """
    width = max(map(len, rows))
    tokens = [[pad_id] * (width - len(row)) + list(row) for row in rows]
    attention = [[False] * (width - len(row)) + [True] * len(row) for row in rows]
    return torch.tensor(tokens, dtype=torch.long), torch.tensor(attention)


def pack_right(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Pad rows of ids on the right.

    Returns:
        Tokens and mask (bool), both of shape (B, T), T the longest row.
    """
    width = max(map(len, rows))
    tokens = [list(row) + [pad_id] * (width - len(row)) for row in rows]
    mask = [[True] * len(row) + [False] * (width - len(row)) for row in rows]
    return torch.tensor(tokens, dtype=torch.long), torch.tensor(mask)
