"""A tenth set of faults from public issues, in families that were hardly used.

Families, faults, sizes and the names that count were fixed and committed before the first run of
attribution on them, and before its list of edits was read. Kinds come from the issues in `SOURCES`;
they were meant to be kinds that no earlier set has. The earlier plants were known. Gaps were
measured before, without attribution; each is above rounding. A name counts that a practitioner
would act on correctly; names that attribution does not have are listed, too. `EXPERT` says how an
expert would word each cause.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import _layers, _wrap_attention, add_faults
from tests.probe.plants.issue_bugs import _modules_with

Names = tuple[str, ...]
SOURCES: dict[str, str] = {
    "cap_formula": "unslothai/unsloth-zoo#593",
    "clip_lost": "vllm-project/vllm#35523 (fixes #35513)",
    "conv_activation_lost": "state-spaces/mamba#816, sgl-project/sgl-kernel-npu#449",
    "decode_unpositioned": "ml-explore/mlx-lm#93",
    "experts_mxfp4": "verl-project/verl#7895",
    "group_modulo": "ggml-org/ggml#231, onnx/onnx#7274, HazyResearch/HipKittens#22",
    "key_scales": "sgl-project/sglang#18396, sgl-project/sglang#28144",
    "label_smoothed": "NVIDIA/Megatron-LM#737, NVIDIA/Megatron-LM#7464",
    "norm_before_block": "keras-team/keras-io#574, lucidrains/perceiver-pytorch#42",
    "partial_pairs": "pie-project/pie#602, apple/coreai-models#66",
    "residual_after_norm": "allenai/OLMo#680, NVIDIA/TensorRT-LLM#476",
    "row_bias_twice": "huggingface/text-generation-inference#1036, GeeeekExplorer/nano-vllm#99",
    "rows_reversed": "ggml-org/llama.cpp#3635, ggml-org/llama.cpp#5838",
    "shard_boundary": "alibaba/ChatLearn#343, NVIDIA-BioNeMo/bionemo-recipes#1449",
    "weight_on_input": "NVIDIA/TensorRT-LLM#3492, sgl-project/sglang#6274",
}
"""Where a fault of this kind was reported."""
EXPERT: dict[str, str] = {
    "cap_formula": "logits are multiplied by tanh(logits / cap), not the cap",
    "clip_lost": "queries, keys and values are not clipped",
    "conv_activation_lost": "the activation after the short convolution is missing",
    "decode_unpositioned": "generated tokens get no position embedding; prompts do",
    "experts_mxfp4": "experts are stored as 4-bit floats with a power of two for 32 values",
    "group_modulo": "query head i reads key head i modulo the key heads, not i / group",
    "key_scales": "keys of each layer are multiplied by a scale of the 8-bit cache, though the "
    "cache is not quantized",
    "label_smoothed": "values are mixed with the mean log-probability of the vocabulary",
    "norm_before_block": "norms after attention and MLP are applied before them",
    "partial_pairs": "the rotated part pairs dimensions across the whole head, with frequencies of "
    "the whole head",
    "residual_after_norm": "the residual around attention is the normed input",
    "row_bias_twice": "each of two ranks adds the bias of the output projection",
    "rows_reversed": "embeddings of added tokens are in another order",
    "shard_boundary": "labels are shifted within each rank's part of the sequence, so that the "
    "last token of each part is given the log-probability of the part's first",
    "weight_on_input": "the router's weight multiplies the expert's input, not its output",
}
"""The cause of each kind."""


def _cap_formula(engine: Any, _: str) -> None:
    """The logits times the hyperbolic tangent, not the cap times it."""
    cap = float(engine._model.config.final_logit_softcapping)

    def logits(hidden: Tensor) -> Tensor:
        plain: Tensor = engine._model.get_output_embeddings()(hidden).float()
        return plain * torch.tanh(plain / cap)

    engine._split.logits = logits


def _clip_lost(engine: Any, _: str) -> None:
    assert engine._model.config.clip_qkv
    engine._model.config.clip_qkv = None


def _conv_activation_lost(engine: Any, _: str) -> None:
    for mixer in _modules_with(engine, "conv1d"):
        assert mixer.activation
        mixer.activation = None


def _decode_unpositioned(engine: Any, _: str) -> None:
    """A pass over one token adds no position embedding."""
    (table,) = (each.embed_positions for each in _modules_with(engine, "embed_positions"))
    table.register_forward_hook(
        lambda _m, _i, out: torch.zeros_like(out) if out.shape[-2] == 1 else out
    )


_FLOATS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _mxfp4(x: Tensor, block: int = 32) -> Tensor:
    """Rounded to e2m1 with one power of two for each block of the last dimension."""
    parts = x.unflatten(-1, (-1, block))
    largest = parts.abs().amax(-1, keepdim=True).clamp(min=1e-30)
    scale = torch.exp2(torch.floor(torch.log2(largest)) - 2)
    nearest = ((parts / scale).abs()[..., None] - _FLOATS).abs().argmin(-1)
    return (_FLOATS[nearest] * parts.sign() * scale).flatten(-2)


def _experts_mxfp4(engine: Any, _: str) -> None:
    with torch.no_grad():
        for experts in _modules_with(engine, "gate_up_proj"):
            experts.gate_up_proj.copy_(_mxfp4(experts.gate_up_proj))
            experts.down_proj.copy_(_mxfp4(experts.down_proj))


def _group_modulo(engine: Any, _: str) -> None:
    """Key-value heads are repeated as a whole, not each of them."""

    def change(
        original: Any, layer: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, *r: Any, **n: Any
    ) -> Any:
        groups = layer.num_key_value_groups
        assert groups > 1
        layer.num_key_value_groups = 1
        out = original(
            layer, q, k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1), mask, *r, **n
        )
        layer.num_key_value_groups = groups
        return out

    _wrap_attention(engine, change)


def _key_scales(engine: Any, value: str) -> None:
    """`SCALE,…`: the keys of each layer are multiplied by its scale."""
    scales = [float(each) for each in value.split(",")]

    def change(
        original: Any, layer: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, *r: Any, **n: Any
    ) -> Any:
        return original(layer, q, k * scales[layer.layer_idx], v, mask, *r, **n)

    _wrap_attention(engine, change)


def _norm_before_block(engine: Any, _: str) -> None:
    for layer in _layers(engine):
        for block, name in (
            ("self_attn", "post_attention_layernorm"), ("mlp", "post_feedforward_layernorm"),
        ):  # fmt: skip
            _moved(getattr(layer, block), getattr(layer, name))
            setattr(layer, name, nn.Identity())


def _moved(block: Any, norm: Any) -> None:
    def before(_m: Any, inputs: Any, named: Any) -> Any:
        if inputs:
            return (norm(inputs[0]), *inputs[1:]), named
        return inputs, named | {"hidden_states": norm(named["hidden_states"])}

    block.register_forward_pre_hook(before, with_kwargs=True)


def _partial_pairs(engine: Any, _: str) -> None:
    """The rotated part is that of a whole head, with its frequencies; the rest has none."""
    model = engine._model.base_model
    config = engine._model.config
    size = config.hidden_size // config.num_attention_heads
    pairs = int(size * config.rope_parameters["partial_rotary_factor"]) // 2
    base = config.rope_parameters["rope_theta"]
    inverse = base ** (-2 * torch.arange(size // 2) / size)
    inverse[pairs:] = 0
    angles: list[Tensor] = []

    def noted(_m: Any, inputs: Any, named: Any, out: Any) -> Any:
        positions = inputs[1] if len(inputs) > 1 else named["position_ids"]
        angles[:] = [positions[..., None, None].float() * inverse]
        return torch.ones_like(out[0]), torch.zeros_like(out[1])

    def turned(_m: Any, _i: Any, x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        cos, sin = angles[0].cos(), angles[0].sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    model.rotary_emb.register_forward_hook(noted, with_kwargs=True)
    for layer in _layers(engine):
        layer.self_attn.q_layernorm.register_forward_hook(turned)
        layer.self_attn.k_layernorm.register_forward_hook(turned)


def _residual_after_norm(engine: Any, _: str) -> None:
    for layer in _layers(engine):
        streams: dict[str, Tensor] = {}

        def noted(_m: Any, inputs: Any, out: Tensor, kept: Any = streams) -> None:
            kept.update(plain=inputs[0], normed=out)

        def added(_m: Any, _i: Any, out: Any, kept: Any = streams) -> Any:
            return out[0] + kept["normed"] - kept["plain"], *out[1:]

        layer.input_layernorm.register_forward_hook(noted)
        layer.self_attn.register_forward_hook(added)


def _row_bias_twice(engine: Any, ranks: str) -> None:
    with torch.no_grad():
        for layer in _layers(engine):
            layer.self_attn.o_proj.bias.mul_(float(ranks))


def _rows_reversed(engine: Any, value: str) -> None:
    """`FIRST,LAST`: the embeddings of some tokens in reverse order."""
    first, last = map(int, value.split(","))
    with torch.no_grad():
        weight = engine._model.get_input_embeddings().weight
        weight[first:last] = weight[first:last].flip(0)


def _shard_boundary(engine: Any, value: str) -> None:
    """Labels are rolled within parts of a sequence: the last one is the part's first token."""
    size, plain = int(value), engine._score_batch
    module = sys.modules["hf.engine"]

    def scored(responses: Any, *rest: Any, **named: Any) -> Any:
        labels: list[int] = []
        for each in responses:
            whole = [*each.prompt_ids, *each.response_ids]
            begin = len(each.prompt_ids)
            labels += [
                whole[at - size] if at % size == 0 else whole[at] for at in range(begin, len(whole))
            ]
        left = torch.tensor(labels)
        read = module.token_readings  # type: ignore[attr-defined]

        def rolled(logits: Tensor, ids: Tensor, processing: Any, want: Any) -> Any:
            nonlocal left
            mine, left = left[: len(ids)], left[len(ids) :]
            return read(logits, mine, processing, want)

        with mock.patch.object(module, "token_readings", rolled):
            return plain(responses, *rest, **named)

    engine._score_batch = scored


def _weight_on_input(engine: Any, _: str) -> None:
    for experts in _modules_with(engine, "gate_up_proj"):

        def forward(
            hidden: Tensor, ids: Tensor, weights: Tensor, plain: Any = experts.forward
        ) -> Tensor:
            total = torch.zeros_like(hidden)
            for k in range(ids.shape[1]):
                mine, by = ids[:, k : k + 1], weights[:, k : k + 1]
                total += plain(hidden * by, mine, torch.ones_like(by))
            return total

        experts.forward = forward


add_faults(
    {
        "cap_formula": _cap_formula,
        "clip_lost": _clip_lost,
        "conv_activation_lost": _conv_activation_lost,
        "decode_unpositioned": _decode_unpositioned,
        "experts_mxfp4": _experts_mxfp4,
        "group_modulo": _group_modulo,
        "key_scales": _key_scales,
        "norm_before_block": _norm_before_block,
        "partial_pairs": _partial_pairs,
        "residual_after_norm": _residual_after_norm,
        "row_bias_twice": _row_bias_twice,
        "rows_reversed": _rows_reversed,
        "shard_boundary": _shard_boundary,
        "weight_on_input": _weight_on_input,
    }
)
NEED_EAGER = {"group_modulo", "key_scales"}


@contextmanager
def reported_over(faults: Mapping[str, str]) -> Iterator[None]:
    """Mix each value with the mean log-probability of the vocabulary."""
    with ExitStack() as stack:
        for source in ("hf.generation", "hf.engine") if "label_smoothed" in faults else ():
            name = "readings" if source == "hf.generation" else "token_readings"
            read = getattr(sys.modules[source], name)

            def smoothed(
                logits: Any, ids: Any, processing: Any, want: Any, read: Any = read
            ) -> Any:
                share = float(faults["label_smoothed"])
                columns = read(logits, ids, processing, want)
                every = sys.modules["hf.logits"].log_probabilities(logits, processing)
                own = columns["logprobs"]
                return columns | {"logprobs": (1 - share) * own + share * every.mean(-1)}

            stack.enter_context(mock.patch.object(sys.modules[source], name, smoothed))
        yield


_BIAS = ("bias-scale", "row-parallel-bias", "tensor-scale", "missing-bias", "model-config")
_BOUNDARY = ("shard-boundary", "off-by-one", "sequence-parallel", "chunk-labels", "lost-tokens",
             "replaced-tokens")  # fmt: skip
_CAP = ("logit-soft-cap", "logit-cap-formula", "model-config")
_CLIP = ("model-config", "activation-limit", "qkv-clip", "clipped-activations")
_CONV = ("activation", "conv-activation", "missing-activation", "state-space", "model-config")
_GROUPS = ("kv-head-order", "head-order", "head-mapping", "qkv-layout", "tensor-order")
_KEYS = ("attention-scale", "kv-cache", "kv-scale", "tensor-scale", "block-scale", "key-scale")
_MIXED = ("label-smoothing", "uniform-mixture", "mixed-uniform", "scaled-logprobs")
_NORM = ("norm-order", "norm-placement", "missing-norm", "norm-position")
_PAIRS = ("rope-layout", "partial-rotary", "rope-pairs", "rope-frequencies")
_POSITION = ("position-ids", "position-embedding", "generation-path")
_RESIDUAL = ("residual", "residual-source", "residual-scale", "norm-order", "norm-placement")
_ROWS = ("embedding-rows", "embedding-order", "swapped-weights", "tensor-order", "vocabulary-order")
_WEIGHTED = ("router-weights", "router-input", "expert-input", "router-weight-on-input")
SINGLES: tuple[tuple[str, str, Names], ...] = (
    ("seed_oss", "row_bias_twice:2", _BIAS),
    ("arcee", "residual_after_norm", _RESIDUAL),
    ("olmoe", "clip_lost", _CLIP),
    ("helium", "group_modulo", _GROUPS),
    ("qwen2", "key_scales:0.5,1.6,0.8", _KEYS),
    ("persimmon", "partial_pairs", _PAIRS),
    ("exaone4", "norm_before_block", _NORM),
    ("granitemoe", "weight_on_input", _WEIGHTED),
    ("olmoe", "experts_mxfp4", ("quantisation",)),
    ("ernie4_5", "rows_reversed:48,64", _ROWS),
    ("mamba", "conv_activation_lost", _CONV),
    ("opt", "decode_unpositioned", _POSITION),
)
"""Families, faults of the sampler, and accepted names."""
LEARNER: tuple[tuple[str, str, Names], ...] = (
    ("gpt_neox_japanese", "shard_boundary:8", _BOUNDARY),
    ("vaultgemma", "cap_formula", _CAP),
    ("hrm_text", "label_smoothed:0.1", _MIXED),
)
"""The same for the learner."""
DOUBLES: tuple[tuple[str, str, tuple[Names, ...]], ...] = (
    ("helium", "group_modulo+hidden_temperature:0.9", (_GROUPS, ("temperature",))),
    ("seed_oss", "row_bias_twice:2", (_BIAS, ("partial-sync",))),
)
"""Families, faults and accepted names; one with a partial sync has a stale layer, too."""
_BFLOAT = {"dtype": "bfloat16"}
HEALTHY: tuple[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("exaone4", _BFLOAT, _BFLOAT, {}),
    ("hrm_text", {}, {"batch_tokens": 200}, {"temperature": 0.7}),
)
"""Families, options of either engine and requested sampling of healthy pairs."""
ROUTED = ("granitemoe", "olmoe")
"""Families whose experts are recorded."""
