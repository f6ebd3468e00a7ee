"""One more token for every row: by the model's own modules, or past them where the model is small.

A decoding step of a model with a hundred thousand weights spends about half of its time in modules,
wrappers and masks. For the plainest architecture, in which many small models come, the same sums
are written down here once more, on weights that are put side by side. Everything else goes through
its own modules.

Shape suffixes beside the usual: R rows still running, W hidden width, H heads, G query heads per
key head, D width of a head, C columns of the cache.
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
_MOST_WEIGHTS = 1 << 24
"""Above it the products take the time, and a second copy of the weights is no longer cheap."""


class Stepper(Protocol):
    """Rows whose prompts are read, and what their next token may be."""

    def step(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """Read a token per row; returns the logits of the next, (R, V), float32."""

    def keep(self, rows: Tensor) -> None:
        """Forget all rows but these."""


def stepper_of(model: PreTrainedModel, cache: Cache, attention_RP: Tensor, room: int) -> Stepper:
    """The fastest way to go on from a cache of prompts.

    Args:
        model: any causal language model of transformers.
        cache: filled with the rows' prompts; it is the stepper's from now on.
        attention_RP: true where a token of the left-padded prompts is real.
        room: steps that will be taken at most.
    """
    weights = plain_weights(model)
    if weights is None:
        return ModuleStepper(model, cache, attention_RP, room)
    return PlainStepper(weights, cache, attention_RP, room)


class ModuleStepper:
    """Goes through the model as it is."""

    def __init__(
        self, model: PreTrainedModel, cache: Cache, attention_RP: Tensor, room: int
    ) -> None:
        self._model, self._cache = model, cache
        self._attention_RC = functional.pad(attention_RP.long(), (0, room), value=1)
        self._columns = attention_RP.shape[1]

    def step(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """As `Stepper` says."""
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
        """As `Stepper` says."""
        self._cache.batch_select_indices(rows)
        self._attention_RC = self._attention_RC[rows]


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer's weights, those that read the same input in one matrix."""

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
    """A plain model's weights as they are now, and its sizes."""

    embedding: Tensor
    layers: list[_Layer]
    norm: Tensor
    head: Tensor
    rotary: nn.Module
    """Gives cosines and sines of positions."""
    epsilon: float
    key_heads: int
    head_width: int


def plain_weights(model: PreTrainedModel) -> PlainWeights | None:
    """Its weights if `PlainStepper` computes what the model does, else None."""
    config: Any = model.config
    if type(model).__name__ not in _PLAIN or not _is_plain(model):
        return None
    decoder: Any = model.model
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # of transformers
    return PlainWeights(
        embedding=decoder.embed_tokens.weight,
        layers=[_layer(each) for each in decoder.layers],
        norm=decoder.norm.weight,
        head=head.weight,
        rotary=decoder.rotary_emb,
        epsilon=config.rms_norm_eps,
        key_heads=config.num_key_value_heads,
        head_width=decoder.layers[0].self_attn.head_dim,
    )


def _is_plain(model: PreTrainedModel) -> bool:
    """Whether nothing in the configuration or among the modules asks for more than is done here."""
    config: Any = model.config
    modules = list(model.modules())
    linear = [each for each in modules if isinstance(each, nn.Linear)]
    return (
        all(each.dtype == torch.float32 for each in model.parameters())
        and sum(each.numel() for each in model.parameters()) <= _MOST_WEIGHTS
        and all(type(each) is nn.Linear for each in linear)  # adapters and quantisers are others
        and len(linear) == 7 * config.num_hidden_layers + 1
        and not any(map(_is_watched, modules))
        and not torch.is_autocast_enabled(model.device.type)
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
        and not getattr(config, "use_sliding_window", False)
        and config.rope_parameters["rope_type"] == "default"
    )


def _is_watched(module: nn.Module) -> bool:
    """Whether somebody wants to see, or change, what goes through it."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)  # noqa: SLF001 - nothing else tells
    return any(hooks)


def _layer(layer: Any) -> _Layer:
    attention, gate = layer.self_attn, layer.mlp
    readers = [attention.q_proj, attention.k_proj, attention.v_proj]
    biases = [each.bias for each in readers if each.bias is not None]
    return _Layer(
        attention_norm=layer.input_layernorm.weight,
        qkv=torch.cat([each.weight for each in readers]),
        qkv_bias=torch.cat(biases) if biases else None,
        out=attention.o_proj.weight,
        out_bias=attention.o_proj.bias,
        gate_norm=layer.post_attention_layernorm.weight,
        gate_up=torch.cat([gate.gate_proj.weight, gate.up_proj.weight]),
        down=gate.down_proj.weight,
    )


class PlainStepper:
    """Computes what Qwen2 and Llama do in float32, in as few operations as can be.

    Rows and key heads are one dimension of keys and values, so that scores are a batched product.
    """

    def __init__(
        self, weights: PlainWeights, cache: Cache, attention_RP: Tensor, room: int
    ) -> None:
        self._weights, self._columns = weights, attention_RP.shape[1]
        spare = (0, 0, 0, room)
        layers: list[Any] = list(cache.layers)
        self._states = [  # (R, H, C, D) each
            (functional.pad(each.keys, spare), functional.pad(each.values, spare))
            for each in layers
        ]
        hidden_RP = torch.zeros(attention_RP.shape, device=attention_RP.device)
        hidden_RP.masked_fill_(~attention_RP, -torch.inf)
        mask_RC = functional.pad(hidden_RP, (0, room))
        self._mask = mask_RC[:, None, None].repeat(1, weights.key_heads, 1, 1)  # (R, H, 1, C)
        every_1C = torch.arange(self._columns + room, device=attention_RP.device)[None]
        cosines_1CD, sines_1CD = weights.rotary(mask_RC, every_1C)
        self._cosines_CD, self._sines_CD = cosines_1CD[0], sines_1CD[0]

    def keep(self, rows: Tensor) -> None:
        """As `Stepper` says."""
        self._states = [(keys[rows], values[rows]) for keys, values in self._states]
        self._mask = self._mask[rows]

    def step(self, tokens_R: Tensor, positions_R: Tensor) -> Tensor:
        """As `Stepper` says."""
        weights = self._weights
        hidden_RW = functional.embedding(tokens_R, weights.embedding)
        turn = self._cosines_CD[positions_R, None], self._sines_CD[positions_R, None]
        self._columns += 1
        for layer, states in zip(weights.layers, self._states, strict=True):
            normed_RW = self._norm(hidden_RW, layer.attention_norm)
            hidden_RW = hidden_RW + self._attend(layer, normed_RW, turn, states)
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
        turn: tuple[Tensor, Tensor],
        states: tuple[Tensor, Tensor],
    ) -> Tensor:
        """What the new tokens read, themselves included: their keys and values join `states`."""
        heads, width = self._weights.key_heads, self._weights.head_width
        qkv = functional.linear(normed_RW, layer.qkv, layer.qkv_bias)
        qkv = qkv.view(len(normed_RW), -1, width)
        turned = _turned(qkv[:, :-heads], *turn)
        for state, new in zip(states, (turned[:, -heads:], qkv[:, -heads:]), strict=True):
            state[:, :, self._columns - 1] = new
        keys, values = (state.flatten(0, 1)[:, : self._columns] for state in states)
        scores = torch.baddbmm(
            self._mask.flatten(0, 1)[..., : self._columns],
            turned[:, :-heads].reshape(len(keys), -1, width),
            keys.transpose(1, 2),
            alpha=width**-0.5,
        )
        read_RW = torch.bmm(scores.softmax(-1), values).view(len(normed_RW), -1)
        return functional.linear(read_RW, layer.out, layer.out_bias)


def _turned(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary embedding of (R, heads, D), the halves of D turned against each other."""
    low, high = heads.chunk(2, dim=-1)
    return (heads * cosines).addcmul_(torch.cat([-high, low], dim=-1), sines)
