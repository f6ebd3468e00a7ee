"""Weights of a small plain model, arranged for few operations.

A pass of a model with a hundred thousand weights spends about half of its time in modules, wrappers
and small operations. For Qwen2 and Llama, the functions of this folder compute the same result from
rearranged weights. All other models run their own modules.

- Matrices with the same input are concatenated.
- The weight of a norm is multiplied into the matrix that reads the norm.
- The scale of the attention scores is multiplied into the query projection.
- A rotary embedding rotates entry i of a head with entry i + D/2. The rows of query and key
  projections are reordered so that these two are neighbours: the rotation is then one complex
  product. The same order in queries and keys leaves the scores unchanged.

Gradients flow through the rearrangement to the model's parameters.

Shape suffixes besides the usual ones: W hidden width, H heads, D width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PLAIN = ("Qwen2ForCausalLM", "LlamaForCausalLM")
_MAX_WEIGHTS = 1 << 24
"""In larger models the matrix products dominate and a second copy of the weights is expensive."""


@dataclass(frozen=True, slots=True)
class PlainLayer:
    """The matrices of a layer; each has one row per output."""

    qkv: Tensor
    """Queries, keys, values."""
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class PlainWeights:
    """The current weights and sizes of a plain model."""

    embedding: nn.Embedding
    layers: list[PlainLayer]
    head: Tensor
    rotary: nn.Module
    """Computes cosines and sines of positions."""
    epsilon: float
    query_heads: int
    key_heads: int
    head_width: int
    recompute: bool = False
    """Whether the backward pass recomputes each layer's activations."""

    @property
    def groups(self) -> int:
        """Query heads per key head."""
        return self.query_heads // self.key_heads

    def rotations(self, columns: int) -> Tensor:
        """The rotation of each position and pair of entries, complex64, (columns, D / 2)."""
        like = self.layers[0].qkv
        columns_1C = torch.arange(columns, device=like.device)[None]
        cosines_1CD, sines_1CD = self.rotary(like, columns_1C)
        half = self.head_width // 2
        return torch.complex(cosines_1CD[0, :, :half], sines_1CD[0, :, :half])

    def paired(self, states: Tensor) -> Tensor:
        """Keys of the model's own modules, (..., D), in the order of this module's keys."""
        return states.view(*states.shape[:-1], 2, -1).transpose(-1, -2).flatten(-2)


def plain_weights(model: PreTrainedModel) -> PlainWeights | None:
    """The model's weights if it is a plain model, else None."""
    config: Any = model.config
    if type(model).__name__ not in _PLAIN or not _is_plain(model):
        return None
    decoder: Any = model.model
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # of transformers
    return PlainWeights(
        embedding=decoder.embed_tokens,
        layers=[_layer(layer) for layer in decoder.layers],
        head=head.weight * decoder.norm.weight,
        rotary=decoder.rotary_emb,
        epsilon=config.rms_norm_eps,
        query_heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_width=decoder.layers[0].self_attn.head_dim,
        recompute=any(layer.training and layer.gradient_checkpointing for layer in decoder.layers),
    )


def _is_plain(model: PreTrainedModel) -> bool:
    """Whether the model has no feature that this folder does not implement."""
    config: Any = model.config
    modules, parameters = list(model.modules()), list(model.parameters())
    linear = [module for module in modules if isinstance(module, nn.Linear)]
    return (
        not model.training  # no dropout
        and all(weight.dtype == torch.float32 for weight in parameters)
        and sum(weight.numel() for weight in parameters) <= _MAX_WEIGHTS
        and all(type(module) is nn.Linear for module in linear)  # no adapters, no quantized layers
        and len(linear) == 7 * config.num_hidden_layers + 1
        and not any(map(_is_observed, modules))
        and not torch.is_autocast_enabled(model.device.type)
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
        and not getattr(config, "use_sliding_window", False)
        and config.rope_parameters["rope_type"] == "default"
    )


def _is_observed(module: nn.Module) -> bool:
    """Whether a hook or a replaced forward pass reads or changes the module's values."""
    state = module.__dict__
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return "forward" in state or any(state[name] for name in hooks)


def _layer(layer: Any) -> PlainLayer:
    attention, mlp = layer.self_attn, layer.mlp
    width, scale = attention.head_dim, attention.head_dim**-0.5
    query, key, value = attention.q_proj, attention.k_proj, attention.v_proj
    qkv = torch.cat([_pairs(query.weight, width) * scale, _pairs(key.weight, width), value.weight])
    bias = None
    if query.bias is not None:
        bias = torch.cat([_pairs(query.bias, width) * scale, _pairs(key.bias, width), value.bias])
    gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
    return PlainLayer(
        qkv=qkv * layer.input_layernorm.weight,
        qkv_bias=bias,
        out=attention.o_proj.weight,
        out_bias=attention.o_proj.bias,
        gate_up=gate_up * layer.post_attention_layernorm.weight,
        down=mlp.down_proj.weight,
    )


def _pairs(rows: Tensor, width: int) -> Tensor:
    """Reorder the rows of each head so that the two entries that rotate together are neighbours."""
    return rows.view(-1, 2, width // 2, *rows.shape[1:]).transpose(1, 2).flatten(0, 2)
