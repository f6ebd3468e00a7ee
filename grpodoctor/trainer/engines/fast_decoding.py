"""Decoding steps: through the model's own modules, or on the rearranged weights of a plain model.

Shape suffixes besides the usual ones: R rows still running, W hidden width, H heads, D width of a
head, C columns of the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from grpodoctor.trainer.model.plain.operations import inverse_rms, rotate_
from grpodoctor.trainer.model.plain.weights import PlainLayer, PlainWeights, plain_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache


class StepDecoder(Protocol):
    """Decodes one token per row at a time, after the prompts have been read."""

    def step(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """Read one token per row; returns the logits of the next token, (R, V), float32."""

    def keep(self, rows: Tensor) -> None:
        """Drop all rows except these."""


def step_decoder_of(
    model: PreTrainedModel, cache: Cache, attention_RP: Tensor, room: int
) -> StepDecoder:
    """The fastest decoder that supports the model.

    The decoder takes ownership of the cache, which holds the prompts. `room` is the number of
    steps.
    """
    weights = plain_weights(model)
    if weights is None:
        return ModuleStepDecoder(model, cache, attention_RP, room)
    return PlainStepDecoder(weights, cache, attention_RP, room)


class ModuleStepDecoder:
    """Runs the model's own modules."""

    def __init__(
        self, model: PreTrainedModel, cache: Cache, attention_RP: Tensor, room: int
    ) -> None:
        self._model, self._cache = model, cache
        self._attention_RC = functional.pad(attention_RP.long(), (0, room), value=1)
        self._columns = attention_RP.shape[1]

    def step(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """See `StepDecoder`."""
        self._columns += 1
        output = self._model(
            input_ids=tokens_R[:, None],
            attention_mask=self._attention_RC[:, : self._columns],
            position_ids=positions_R[:, None],
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits[:, -1].float()
        return logits

    def keep(self, rows: Tensor) -> None:
        """See `StepDecoder`."""
        self._cache.batch_select_indices(rows)
        self._attention_RC = self._attention_RC[rows]


class PlainStepDecoder:
    """Decodes a plain model in float32 with as few operations as possible.

    Keys and values are next to each other in one cache, so that one copy adds a token to both. Rows
    and key heads form one dimension of it, so that scores are a batched product.
    """

    def __init__(
        self, weights: PlainWeights, cache: Cache, attention_RP: Tensor, room: int
    ) -> None:
        self._weights, self._columns = weights, attention_RP.shape[1]
        layers: list[Any] = list(cache.layers)
        self._states = [  # (R, H, C, 2 D) each
            functional.pad(
                torch.cat([weights.paired(layer.keys), layer.values], dim=-1), (0, 0, 0, room)
            )
            for layer in layers
        ]
        hidden_RP = torch.zeros(attention_RP.shape, device=attention_RP.device)
        hidden_RP.masked_fill_(~attention_RP, -torch.inf)
        mask_RC = functional.pad(hidden_RP, (0, room))
        self._mask = mask_RC[:, None, None].repeat(1, weights.key_heads, 1, 1)  # (R, H, 1, C)
        self._rotations = weights.rotations(self._columns + room)

    def keep(self, rows: Tensor) -> None:
        """See `StepDecoder`."""
        self._states = [states[rows] for states in self._states]
        self._mask = self._mask[rows]

    def step(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """See `StepDecoder`."""
        weights = self._weights
        hidden_RW = functional.embedding(tokens_R, weights.embedding.weight)
        rotations = self._rotations[positions_R, None]
        self._columns += 1
        for layer, states in zip(weights.layers, self._states, strict=True):
            attended_RW = self._attend(layer, self._norm(hidden_RW), rotations, states)
            if layer.out_bias is not None:
                hidden_RW = hidden_RW + layer.out_bias
            hidden_RW = torch.addmm(hidden_RW, attended_RW, layer.out.t())
            gate, up = functional.linear(self._norm(hidden_RW), layer.gate_up).chunk(2, dim=-1)
            gated = functional.silu(gate).mul_(up)
            hidden_RW = torch.addmm(hidden_RW, gated, layer.down.t())
        return functional.linear(self._norm(hidden_RW), weights.head)

    def _norm(self, hidden_RW: Tensor) -> Tensor:
        return hidden_RW * inverse_rms(hidden_RW, self._weights.epsilon)

    def _attend(
        self, layer: PlainLayer, normed_RW: Tensor, rotations: Tensor, states: Tensor
    ) -> Tensor:
        """Attention output of the new tokens; their keys and values are added to `states`."""
        queries, heads = self._weights.query_heads, self._weights.key_heads
        width, count = self._weights.head_width, len(normed_RW)
        qkv = functional.linear(normed_RW, layer.qkv, layer.qkv_bias).view(count, -1, width)
        rotate_(qkv, rotations, queries + heads)
        new = qkv[:, queries:].view(count, 2, heads, width).transpose(1, 2)
        states[:, :, self._columns - 1] = new.flatten(2)
        keys_values = states.flatten(0, 1)[:, : self._columns]
        scores = torch.baddbmm(
            self._mask.flatten(0, 1)[..., : self._columns],
            qkv[:, :queries].reshape(count * heads, -1, width),
            keys_values[..., :width].transpose(1, 2),
        )
        return torch.bmm(scores.softmax(-1), keys_values[..., width:]).view(count, -1)
