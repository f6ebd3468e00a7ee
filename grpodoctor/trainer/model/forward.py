"""Forward passes: logits at the response positions, compute dtype, padding, checkpointed layers.

`grpodoctor.trainer.samples` describes the layout of a batch. Position ids are given explicitly and
count only real tokens, so that padding changes no result.
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
"""Model attribute: the dtype of its matrix products, if it differs from the dtype of the weights.

It is an attribute of the model so that a copy of the model computes in the same dtype.
"""


def set_compute_dtype(model: nn.Module, dtype: torch.dtype) -> None:
    """Make all forward passes of a model multiply matrices in `dtype`; the weights stay as is."""
    setattr(model, _COMPUTE, dtype)


def autocast_context(model: PreTrainedModel) -> AbstractContextManager[object]:
    """The autocast context of a model's forward passes; one context casts each weight once.

    It must end before the optimizer step, because the cast weights are cached until then.
    """
    dtype = getattr(model, _COMPUTE, None)
    return nullcontext() if dtype is None else torch.autocast(model.device.type, dtype)


_RECOMPUTE = "_gradient_checkpointing_func"
"""Attribute of a transformers layer: the function that runs it without storing activations."""


@contextmanager
def gradient_checkpointing(model: nn.Module, *, enabled: bool) -> Iterator[None]:
    """Gradient checkpointing for the forward passes in the body: layers store only their inputs.

    transformers does this for layers in training mode. Only the layers themselves are switched to
    training mode, not their submodules, so that dropout stays off.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [
        module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)
    ]
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
    """Logits that predict each response token; differentiable.

    Args:
        model: a transformers causal language model.
        tokens_BL: left-padded prompts, then responses.
        attention_BL: true where a token is real.
        prompt_width: columns of the prompts; the other T = L - prompt_width belong to responses.

    Returns:
        Logits of shape (B, T, V) in the model's compute dtype. Prompt logits are not computed.
    """
    width = tokens_BL.shape[1]
    with autocast_context(model):
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
        rows: token ids; no row may be empty.
        pad_id: the padding id.
        device: device of the result; None for torch's default device.

    Returns:
        Tokens and attention (bool), both of shape (B, L), where L is the longest row.
    """
    width = max(map(len, rows))
    tokens = [[pad_id] * (width - len(row)) + list(row) for row in rows]
    attention = [[False] * (width - len(row)) + [True] * len(row) for row in rows]
    return torch.tensor(tokens, device=device), torch.tensor(attention, device=device)


def pack_right(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Pad rows of ids on the right.

    Returns:
        Tokens and mask (bool), both of shape (B, T), where T is the longest row.
    """
    width = max(map(len, rows))
    tokens = [list(row) + [pad_id] * (width - len(row)) for row in rows]
    mask = [[True] * len(row) + [False] * (width - len(row)) for row in rows]
    return torch.tensor(tokens, dtype=torch.long), torch.tensor(mask)
