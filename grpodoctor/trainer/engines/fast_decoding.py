"""Decoding steps: through the model's own modules, or with a faster path for small plain models.

A decoding step of a model with a hundred thousand weights spends about half of its time in modules,
wrappers and masks. For the most common architecture of small models, this module computes the same
result directly on concatenated weights. All other models go through their own modules.

Shape suffixes besides the usual ones: R rows still running, W hidden width, H heads, G query heads
per key head, D width of a head, C columns of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache

_PLAIN = ("Qwen2ForCausalLM", "LlamaForCausalLM")
_MAX_WEIGHTS = 1 << 24
"""In larger models the matrix products dominate and a second copy of the weights is expensive."""


class Stepper(Protocol):
    """Decodes one token per row at a time, after the prompts have been read."""

    def step(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """Read one token per row; returns the logits of the next token, (R, V), float32."""

    def keep(self, rows: Tensor) -> None:
        """Drop all rows except these."""


def stepper_of(model: PreTrainedModel, cache: Cache, attention_RP: Tensor, room: int) -> Stepper:
    """The fastest stepper that supports the model.

    The stepper takes ownership of the cache, which holds the prompts. `room` is the number of
    steps.
    """
    weights = plain_weights(model)
    if weights is None:
        return ModuleStepper(model, cache, attention_RP, room)
    return PlainStepper(weights, cache, attention_RP, room)


class ModuleStepper:
    """Runs the model's own modules."""

    def __init__(
        self, model: PreTrainedModel, cache: Cache, attention_RP: Tensor, room: int
    ) -> None:
        self._model, self._cache = model, cache
        self._attention_RC = functional.pad(attention_RP.long(), (0, room), value=1)
        self._columns = attention_RP.shape[1]

    def step(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """See `Stepper`."""
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
        """See `Stepper`."""
        self._cache.batch_select_indices(rows)
        self._attention_RC = self._attention_RC[rows]


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer's weights; matrices with the same input are concatenated."""

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    gate_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class PlainWeights:
    """The current weights and sizes of a plain model."""

    embedding: Tensor
    layers: list[_Layer]
    norm: Tensor
    head: Tensor
    rotary: nn.Module
    """Computes cosines and sines of positions."""
    epsilon: float
    key_heads: int
    head_width: int


def plain_weights(model: PreTrainedModel) -> PlainWeights | None:
    """The model's weights if `PlainStepper` supports the model, else None."""
    config: Any = model.config
    if type(model).__name__ not in _PLAIN or not _is_plain(model):
        return None
    decoder: Any = model.model
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # of transformers
    return PlainWeights(
        embedding=decoder.embed_tokens.weight,
        layers=[_layer(layer) for layer in decoder.layers],
        norm=decoder.norm.weight,
        head=head.weight,
        rotary=decoder.rotary_emb,
        epsilon=config.rms_norm_eps,
        key_heads=config.num_key_value_heads,
        head_width=decoder.layers[0].self_attn.head_dim,
    )


def _is_plain(model: PreTrainedModel) -> bool:
    """Whether the model has no feature that `PlainStepper` does not implement."""
    config: Any = model.config
    modules = list(model.modules())
    linear = [module for module in modules if isinstance(module, nn.Linear)]
    return (
        all(weight.dtype == torch.float32 for weight in model.parameters())
        and sum(weight.numel() for weight in model.parameters()) <= _MAX_WEIGHTS
        and all(type(module) is nn.Linear for module in linear)  # no adapters, no quantized layers
        and len(linear) == 7 * config.num_hidden_layers + 1
        and not any(map(_has_hooks, modules))
        and not torch.is_autocast_enabled(model.device.type)
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
        and not getattr(config, "use_sliding_window", False)
        and config.rope_parameters["rope_type"] == "default"
    )


def _has_hooks(module: nn.Module) -> bool:
    """Whether a hook reads or changes the module's inputs or outputs."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)  # noqa: SLF001 - no public access
    return any(hooks)


def _layer(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    biases = [projection.bias for projection in projections if projection.bias is not None]
    return _Layer(
        attention_norm=layer.input_layernorm.weight,
        qkv=torch.cat([projection.weight for projection in projections]),
        qkv_bias=torch.cat(biases) if biases else None,
        out=attention.o_proj.weight,
        out_bias=attention.o_proj.bias,
        gate_norm=layer.post_attention_layernorm.weight,
        gate_up=torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight,
    )


class PlainStepper:
    """Computes Qwen2 and Llama in float32 with as few operations as possible.

    Rows and key heads form one dimension of keys and values, so that scores are a batched product.
    """

    def __init__(
        self, weights: PlainWeights, cache: Cache, attention_RP: Tensor, room: int
    ) -> None:
        self._weights, self._columns = weights, attention_RP.shape[1]
        spare = (0, 0, 0, room)
        layers: list[Any] = list(cache.layers)
        self._states = [  # (R, H, C, D) each
            (functional.pad(layer.keys, spare), functional.pad(layer.values, spare))
            for layer in layers
        ]
        hidden_RP = torch.zeros(attention_RP.shape, device=attention_RP.device)
        hidden_RP.masked_fill_(~attention_RP, -torch.inf)
        mask_RC = functional.pad(hidden_RP, (0, room))
        self._mask = mask_RC[:, None, None].repeat(1, weights.key_heads, 1, 1)  # (R, H, 1, C)
        columns_1C = torch.arange(self._columns + room, device=attention_RP.device)[None]
        cosines_1CD, sines_1CD = weights.rotary(mask_RC, columns_1C)
        self._cosines_CD, self._sines_CD = cosines_1CD[0], sines_1CD[0]

    def keep(self, rows: Tensor) -> None:
        """See `Stepper`."""
        self._states = [(keys[rows], values[rows]) for keys, values in self._states]
        self._mask = self._mask[rows]

    def step(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """See `Stepper`."""
        weights = self._weights
        hidden_RW = functional.embedding(tokens_R, weights.embedding)
        rotation = self._cosines_CD[positions_R, None], self._sines_CD[positions_R, None]
        self._columns += 1
        for layer, states in zip(weights.layers, self._states, strict=True):
            normed_RW = self._norm(hidden_RW, layer.attention_norm)
            hidden_RW = hidden_RW + self._attend(layer, normed_RW, rotation, states)
            normed_RW = self._norm(hidden_RW, layer.gate_norm)
            gate, up = functional.linear(normed_RW, layer.gate_up).chunk(2, dim=-1)
            hidden_RW = hidden_RW + functional.linear(functional.silu(gate).mul_(up), layer.down)
        return functional.linear(self._norm(hidden_RW, weights.norm), weights.head)

    def _norm(self, hidden_RW: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden_RW, weight.shape, weight, self._weights.epsilon)

    def _attend(
        self,
        layer: _Layer,
        normed_RW: Tensor,
        rotation: tuple[Tensor, Tensor],
        states: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Attention output of the new tokens; their keys and values are added to `states`."""
        heads, width = self._weights.key_heads, self._weights.head_width
        qkv = functional.linear(normed_RW, layer.qkv, layer.qkv_bias)
        qkv = qkv.view(len(normed_RW), -1, width)
        rotated = _rotate(qkv[:, :-heads], *rotation)
        for state, new in zip(states, (rotated[:, -heads:], qkv[:, -heads:]), strict=True):
            state[:, :, self._columns - 1] = new
        keys, values = (state.flatten(0, 1)[:, : self._columns] for state in states)
        scores = torch.baddbmm(
            self._mask.flatten(0, 1)[..., : self._columns],
            rotated[:, :-heads].reshape(len(keys), -1, width),
            keys.transpose(1, 2),
            alpha=width**-0.5,
        )
        attended_RW = torch.bmm(scores.softmax(-1), values).view(len(normed_RW), -1)
        return functional.linear(attended_RW, layer.out, layer.out_bias)


def _rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary embedding of (R, heads, D), which rotates pairs from the two halves of D."""
    low, high = heads.chunk(2, dim=-1)
    return (heads * cosines).addcmul_(torch.cat([-high, low], dim=-1), sines)
