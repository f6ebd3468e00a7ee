"""Logits of a batch's generated tokens from a plain model; differentiable.

Rows are moved to the left, so that a causal mask is the only mask. Where much of the batch is
padding, only real tokens go through the matrices, and rows are padded for the attention alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.nn import functional

from grpodoctor.trainer.model.plain.operations import gated_silu, rotated, unit_rms
from grpodoctor.trainer.model.plain.weights import PlainLayer, PlainWeights
from grpodoctor.trainer.samples import Samples

_PACKED_BELOW = 0.85
"""Share of real tokens below which padding is left out of the matrix products. Packing copies the
heads of each layer twice in either direction, which costs about a tenth of the layer's time."""


class _Layout(NamedTuple):
    """Where the tokens of a batch are, after its rows were moved to the left."""

    ids_N: Tensor
    """Tokens to read: the real ones, or all with padding."""
    columns_N: Tensor
    """Column of each of them, which is its position."""
    shape: tuple[int, int]
    """Rows and columns of the padded batch."""
    cells_N: Tensor | None
    """Index of each token in the padded batch; None if all cells are read."""
    readers: Tensor
    """Indices of the tokens that predict the generated tokens, in the order of the mask."""


def plain_logits(weights: PlainWeights, samples: Samples) -> Tensor:
    """Logits that predict the tokens under `samples.mask_BT`, in its order, shape (N, V)."""
    layout, embedding = _layout(samples), weights.embedding
    hidden_NW = functional.embedding(layout.ids_N, embedding.weight, embedding.padding_idx)
    rotations = weights.rotations(layout.shape[1])[layout.columns_N, None]
    for layer in weights.layers:
        arguments = (weights, layer, hidden_NW, rotations, layout)
        hidden_NW = (
            torch.utils.checkpoint.checkpoint(
                _layer, *arguments, use_reentrant=False, preserve_rng_state=False
            )
            if weights.recompute
            else _layer(*arguments)
        )
    normed_NW = unit_rms(hidden_NW.index_select(0, layout.readers), weights.epsilon)
    return functional.linear(normed_NW, weights.head)


def _layer(
    weights: PlainWeights,
    layer: PlainLayer,
    hidden_NW: Tensor,
    rotations: Tensor,
    layout: _Layout,
) -> Tensor:
    """The hidden states after a layer."""
    normed_NW = unit_rms(hidden_NW, weights.epsilon)
    qkv = functional.linear(normed_NW, layer.qkv, layer.qkv_bias)
    states = qkv.view(len(qkv), -1, weights.head_width)
    states = rotated(states, rotations, weights.query_heads + weights.key_heads)
    attended_NW = _attend(weights, states, layout)
    if layer.out_bias is not None:
        hidden_NW = hidden_NW + layer.out_bias
    hidden_NW = torch.addmm(hidden_NW, attended_NW, layer.out.t())
    normed_NW = unit_rms(hidden_NW, weights.epsilon)
    gated = gated_silu(functional.linear(normed_NW, layer.gate_up))
    return torch.addmm(hidden_NW, gated, layer.down.t())


def _attend(weights: PlainWeights, states: Tensor, layout: _Layout) -> Tensor:
    """The attention of queries, keys and values (N, all heads, D), as (N, H D)."""
    cells_N, (rows, columns) = layout.cells_N, layout.shape
    if cells_N is not None:
        padded = states.new_zeros(rows * columns, *states.shape[1:])
        states = padded.index_copy(0, cells_N, states)
    heads = [weights.query_heads, weights.key_heads, weights.key_heads]
    queries, keys, values = (
        part.transpose(1, 2)
        for part in torch.split(states.view(*layout.shape, *states.shape[1:]), heads, dim=2)
    )
    if weights.groups > 1:
        keys, values = (part.repeat_interleave(weights.groups, dim=1) for part in (keys, values))
    attended = functional.scaled_dot_product_attention(
        queries, keys, values, is_causal=True, scale=1.0
    )
    attended_NW = attended.transpose(1, 2).flatten(2).flatten(0, 1)
    return attended_NW if cells_N is None else attended_NW.index_select(0, cells_N)


def _layout(samples: Samples) -> _Layout:
    """Move the rows of a batch to the left and find the tokens to read."""
    attention_BL, device = samples.attention_BL, samples.tokens_BL.device
    prompt_BP = attention_BL[:, : samples.prompt_width]
    prompts_B, reads_B = prompt_BP.sum(dim=1), attention_BL.sum(dim=1) - 1
    width = int(reads_B.max())  # the last token of a row predicts nothing
    columns_L = torch.arange(width, device=device)
    source_BL = (samples.prompt_width - prompts_B)[:, None] + columns_L
    ids = samples.tokens_BL.gather(1, source_BL.clamp_(max=attention_BL.shape[1] - 1)).flatten()
    read_BL = columns_L < reads_B[:, None]
    predicts = (read_BL & (columns_L >= prompts_B[:, None] - 1)).flatten()
    columns = columns_L.expand_as(read_BL).flatten()
    shape, cells_N = (len(read_BL), width), None
    if int(reads_B.sum()) < _PACKED_BELOW * len(ids):
        cells_N = read_BL.flatten().nonzero().squeeze(1)
        ids, columns, predicts = ids[cells_N], columns[cells_N], predicts[cells_N]
    return _Layout(ids, columns, shape, cells_N, predicts.nonzero().squeeze(1))
