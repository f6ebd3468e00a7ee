"""The learner's view of a batch: logits at the response positions, and how a batch is laid out.

    tokens_BL     [pad pad p p p | r r r E pad]
    attention_BL  [ 0   0  1 1 1 | 1 1 1 1  0 ]
                   prompt_width    T

Prompts are padded on the left, so that all responses begin in the same column. Positions are given
explicitly and count real tokens only, so that padding changes no number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_COMPUTE = "grpodoctor_compute"
"""Attribute of a model: the dtype of its matrix products, where it is not that of the weights.

It stands at the model so that a copy of it computes in the same.
"""


def compute_in(model: nn.Module, dtype: torch.dtype) -> None:
    """Have all forward passes of a model multiply matrices in `dtype`, its weights as they are."""
    setattr(model, _COMPUTE, dtype)


def casting(model: PreTrainedModel) -> AbstractContextManager[object]:
    """The context for a model's forward passes; one context casts each weight once.

    It must end before the optimizer's step: the casts of weights outlive it otherwise.
    """
    dtype = getattr(model, _COMPUTE, None)
    return nullcontext() if dtype is None else torch.autocast(model.device.type, dtype)


_RECOMPUTE = "_gradient_checkpointing_func"
"""Attribute of a layer of transformers: how it runs with its activations forgotten."""


@contextmanager
def recomputing(model: nn.Module, *, enabled: bool) -> Iterator[None]:
    """Gradient checkpointing for the forward passes inside: layers keep their inputs alone.

    transformers does it for layers in training mode. Only the layers themselves are put into it,
    not what is in them, so that dropout stays off.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [each for each in model.modules() if isinstance(each, GradientCheckpointingLayer)]
    layers = layers if enabled else []
    checkpoint = partial(
        torch.utils.checkpoint.checkpoint, use_reentrant=False, preserve_rng_state=False
    )
    for layer in layers:
        layer.training, layer.gradient_checkpointing = True, True
        setattr(layer, _RECOMPUTE, checkpoint)
    try:
        yield
    finally:
        for layer in layers:
            layer.training, layer.gradient_checkpointing = False, False


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
        Logits of shape (B, T, V) in the dtype the model computes in; those of the prompt are never
        computed.
    """
    width = tokens_BL.shape[1]
    with casting(model):
        output = model(
            input_ids=tokens_BL[:, :-1],
            attention_mask=attention_BL[:, :-1].long(),
            position_ids=positions(attention_BL[:, :-1]),
            logits_to_keep=width - prompt_width,
            use_cache=False,
        )
    logits: Tensor = output.logits
    return logits


def pack_left(
    rows: Sequence[Sequence[int]], pad_id: int, device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """Pad rows of ids on the left.

    Args:
        rows: none of them empty.
        pad_id: fills the rest.
        device: of the result; the default one by default.

    Returns:
        Tokens and attention (bool), both of shape (B, L), L the longest row.
    """
    width = max(map(len, rows))
    tokens = [[pad_id] * (width - len(row)) + list(row) for row in rows]
    attention = [[False] * (width - len(row)) + [True] * len(row) for row in rows]
    return torch.tensor(tokens, device=device), torch.tensor(attention, device=device)


def pack_right(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Pad rows of ids on the right.

    Returns:
        Tokens and mask (bool), both of shape (B, T), T the longest row.
    """
    width = max(map(len, rows))
    tokens = [list(row) + [pad_id] * (width - len(row)) for row in rows]
    mask = [[True] * len(row) + [False] * (width - len(row)) for row in rows]
    return torch.tensor(tokens, dtype=torch.long), torch.tensor(mask)
