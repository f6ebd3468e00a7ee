"""Further faults, planted after attribution was written; names were accepted before the first run.

Faults of the forward pass are functions of the loaded engine and the fault's value, like those of
`computing.py`; faults of sampling change the next token's logits, the prompts or the responses.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import nn

from tests.probe.plants.computing import (
    _RESTORED,
    _head,
    _modules,
    _output,
    _times,
    _wrap_attention,
    add_faults,
)

NEED_EAGER = {"window_layer", "distance_bias"}
"""Faults that need the family's own attention function."""


def _rope_reversed(engine: Any, _: str) -> None:
    for _name, module in _modules(engine, "rotary"):
        module.inv_freq = -module.inv_freq


def _partial_rotary(engine: Any, share: str) -> None:
    for _name, module in _modules(engine, "rotary"):
        count = module.inv_freq.numel()
        kept = torch.arange(count) < float(share) * count
        module.inv_freq = module.inv_freq * kept


def _rope_bf16(engine: Any, _: str) -> None:
    for _name, module in _modules(engine, "rotary"):
        module.register_forward_hook(
            lambda _m, _i, out: tuple(part.bfloat16().to(part.dtype) for part in out)
        )


def _position_gap(engine: Any, far: str) -> None:
    """The positions of the response are counted from another prompt length."""

    def moved(_module: nn.Module, arguments: Any, named: Any) -> Any:
        if "position_ids" in named:
            positions = named["position_ids"]
            if positions.shape[-1] == 1:
                named = named | {"position_ids": positions + int(far)}
            return arguments, named
        first, positions = arguments[:2]
        if positions.shape[-1] == 1:
            positions = positions + int(far)
        return (first, positions, *arguments[2:]), named

    for _name, module in _modules(engine, "rotary"):
        module.register_forward_pre_hook(moved, with_kwargs=True)


def _window_layer(engine: Any, value: str) -> None:
    """A window in one layer: `LAYER,WIDTH`."""
    which, width = map(int, value.split(","))

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        if layer.layer_idx == which:
            ages = torch.arange(k.shape[2])[None] - torch.arange(k.shape[2])[-q.shape[2] :, None]
            hidden = torch.zeros(ages.shape).masked_fill((ages <= -width) | (ages > 0), -1e30)
            mask = hidden if mask is None else torch.minimum(mask[..., : k.shape[2]], hidden)
        return original(layer, q, k, v, mask, *r, **n)

    _wrap_attention(engine, change)


def _distance_bias(engine: Any, slope: str) -> None:
    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        ages = torch.arange(k.shape[2])[None] - torch.arange(k.shape[2])[-q.shape[2] :, None]
        bias = torch.where(ages > 0, -1e30, float(slope) * ages.float())
        mask = bias if mask is None else mask[..., : k.shape[2]] + bias
        return original(layer, q, k, v, mask, *r, **n)

    _wrap_attention(engine, change)


def _norm_after_rope(engine: Any, _: str) -> None:
    """Queries and keys are rotated first and normalized then."""
    layers = [module for _, module in _modules(engine, "attention") if hasattr(module, "q_norm")]
    current: list[nn.Module] = []
    source = sys.modules[type(layers[0]).__module__]
    original = source.apply_rotary_pos_emb
    for layer in layers:
        layer.planted_norms = layer.q_norm.forward, layer.k_norm.forward
        layer.q_norm.forward = layer.k_norm.forward = lambda x: x
        layer.register_forward_pre_hook(lambda module, _arguments: current.append(module))

    def turned(q: Any, k: Any, cos: Any, sin: Any, *rest: Any, **named: Any) -> Any:
        turned_q, turned_k = original(q, k, cos, sin, *rest, **named)
        of_q, of_k = current[-1].planted_norms if current else (lambda x: x, lambda x: x)
        current.clear()
        return of_q(turned_q), of_k(turned_k)

    source.apply_rotary_pos_emb = turned
    _RESTORED.append((source, "apply_rotary_pos_emb", original))


def _without_shared(engine: Any, _: str) -> None:
    shared = [m for name, m in engine._model.named_modules() if name.endswith("shared_experts")]
    assert shared
    for module in shared:
        module.register_forward_hook(lambda _m, _i, out: 0 * out)


def _experts_swapped(engine: Any, _: str) -> None:
    with torch.no_grad():
        for router in engine._routers.modules:
            weight = next(iter(router.parameters()))
            order = [1, 0, *range(2, len(weight))]
            weight.copy_(weight[order])


def _residual_scale(engine: Any, value: str) -> None:
    for name, module in engine._model.named_modules():
        if name.endswith((".mlp", ".feed_forward", ".block_sparse_moe")):
            module.register_forward_hook(lambda _m, _i, out: _scaled(out, float(value)))


def _scaled(out: Any, factor: float) -> Any:
    return (out[0] * factor, *out[1:]) if isinstance(out, tuple) else out * factor


def _head_bf16(engine: Any, _: str) -> None:
    head = _head(engine._model)

    def lowered(module: Any, arguments: Any, out: Any) -> Any:
        return nn.functional.linear(arguments[0].bfloat16(), module.weight.bfloat16()).to(out.dtype)

    head.register_forward_hook(lowered)


add_faults(
    {
        "rope_reversed": _rope_reversed,
        "partial_rotary": _partial_rotary,
        "rope_bf16": _rope_bf16,
        "position_gap": _position_gap,
        "window_layer": _window_layer,
        "distance_bias": _distance_bias,
        "norm_after_rope": _norm_after_rope,
        "without_shared": _without_shared,
        "routed_scaling": _times("routed_scaling_factor"),
        "experts_swapped": _experts_swapped,
        "residual_scale": _residual_scale,
        "head_bf16": _head_bf16,
        "logits_bf16": _output(_head, lambda x, _: x.bfloat16().float()),
        "logits_clamped": _output(_head, lambda x, most: x.clamp(-most, most)),
    }
)


PAD = 0


def read_prompts(faults: Mapping[str, str], prompts: list[list[int]]) -> list[list[int]]:
    """The prompts that are really read."""
    if "last_lost" in faults:
        return [prompt[:-1] for prompt in prompts]
    if "start_twice" in faults:  # as a system prompt that both the client and the server add
        return [prompt[: int(faults["start_twice"])] + prompt for prompt in prompts]
    if "padded_right" in faults:
        width = max(map(len, prompts))
        return [prompt + [PAD] * (width - len(prompt)) for prompt in prompts]
    return prompts


def changed_row(logits: Any, faults: Mapping[str, str]) -> Any:
    """The next token's logits after further processors."""
    if "vocabulary_cut" in faults:
        logits[int(faults["vocabulary_cut"]) :] = -torch.inf
    if "greedy" in faults:
        logits[logits < logits.max()] = -torch.inf
    if "typical" in faults:
        logits = _typical(logits, float(faults["typical"]))
    if "early_top_p" in faults:  # before the temperature
        order = logits.argsort(descending=True)
        before = logits[order].softmax(-1).cumsum(-1).roll(1)
        before[0] = 0
        logits[order[before >= float(faults["early_top_p"])]] = -torch.inf
    return logits


def _typical(logits: Any, mass: float) -> Any:
    logprobs = logits.log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum()
    order = (-logprobs - entropy).abs().argsort()
    before = logprobs[order].exp().cumsum(-1).roll(1)
    before[0] = 0
    logits[order[before >= mass]] = -torch.inf
    return logits


PROCESSORS = ("vocabulary_cut", "greedy", "typical", "early_top_p")


@contextmanager
def reported_over(faults: Mapping[str, str]) -> Iterator[None]:
    """Normalize the reported values over a vocabulary padded with zero logits."""
    if "padded_vocabulary" not in faults:
        yield
        return
    with ExitStack() as stack:
        for source in ("hf.generation", "hf.engine"):
            name = "readings" if source == "hf.generation" else "token_readings"
            read = getattr(sys.modules[source], name)
            stack.enter_context(mock.patch.object(sys.modules[source], name, _padded(read, faults)))
        yield


def _padded(read: Any, faults: Mapping[str, str]) -> Any:
    def padded(logits: Any, ids: Any, processing: Any, want: Any) -> Any:
        extra = torch.zeros(*logits.shape[:-1], int(faults["padded_vocabulary"]))
        return read(torch.cat([logits, extra], -1), ids, processing, want)

    return padded


def changed_responses(faults: Mapping[str, str], responses: Sequence[Any]) -> list[Any]:
    """The responses after faults of the engine that drew them."""
    if "same_seed" not in faults:
        return list(responses)
    first: dict[int, Any] = {}
    for response in responses:
        first.setdefault(response.prompt, response)
    return [replace(first[each.prompt], sample=each.sample) for each in responses]


COMPUTED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "rope_reversed": (("rope-layout", "rope-scaling"), ("llama", "qwen3_moe")),
    "partial_rotary:0.5": (("rope-layout", "rope-scaling"), ("llama", "mixtral")),
    "rope_bf16": (("rope-precision", "precision"), ("mistral",)),
    "position_gap:8": (("position-ids",), ("llama", "qwen3")),
    "window_layer:1,8": (("sliding-window",), ("llama", "gpt_neox")),
    "distance_bias:0.1": (("attention-bias",), ("qwen3", "phi")),
    "norm_after_rope": (("qk-norm",), ("qwen3", "qwen3_moe")),
    "without_shared": (("missing-experts",), ("deepseek_v3",)),
    "routed_scaling:0.4": (("router-weights", "model-config"), ("deepseek_v3",)),
    "experts_swapped": (("unknown", "expert-order"), ("mixtral",)),
    "residual_scale:0.8": (("residual-scale", "model-config"), ("llama", "gemma2")),
    "head_bf16": (("precision", "logit-precision"), ("qwen3", "gpt_neox")),
    "logits_bf16": (("precision", "logit-precision", "storage-precision"), ("mistral", "phi")),
    "logits_clamped:2.5": (("logit-soft-cap", "logit-clamp"), ("llama", "gpt_neox")),
}
"""Accepted names and families by fault of the forward pass."""
SAMPLED: dict[str, tuple[tuple[str, ...], dict[str, Any], tuple[str, ...]]] = {
    "hidden_min_p:0.1": (("truncation",), {}, ("mistral", "gpt_neox")),
    "typical:0.8": (("truncation", "typical-p"), {}, ("llama", "phi")),
    "early_top_p:0.9": (("truncation",), {"temperature": 0.7}, ("qwen3", "mixtral")),
    "hidden_temperature:0.7": (("temperature",), {"temperature": 0.7}, ("llama", "deepseek_v3")),
    "raw+frequency:0.5": (("frequency-penalty", "wrong-sampler"), {}, ("mistral",)),
    "raw+greedy": (("wrong-sampler", "temperature"), {}, ("gemma2", "phi")),
    "vocabulary_cut:58": (("logit-bias", "truncation"), {}, ("llama", "qwen3_moe")),
    "padded_vocabulary:16": (("padded-vocabulary",), {}, ("llama", "gemma2")),
    "same_seed": (("duplicate-samples", "wrong-sampler"), {}, ("llama", "mixtral")),
    "averaged_in:4": (("averaging",), {}, ("qwen3", "gpt_neox")),
    "last_lost": (("prompt-ids",), {}, ("llama", "deepseek_v3")),
    "start_twice:4": (("prompt-ids",), {}, ("gemma2", "mixtral")),
    "padded_right": (("attended-padding", "prompt-ids"), {}, ("llama", "phi")),
}
"""Accepted names, requested sampling and families by fault of sampling or reporting."""
DOUBLES: tuple[tuple[str, str, tuple[tuple[str, ...], ...]], ...] = (
    ("llama", "hidden_min_p:0.1+rope_linear:2", (("truncation",), ("rope-scaling", "rope-base"))),
    ("mixtral", "partial_rotary:0.5+hidden_temperature:1.25",
     (("rope-layout", "rope-scaling"), ("temperature",))),
    ("phi", "window_layer:1,8+bf16_storage", (("sliding-window",), ("storage-precision",))),
    ("gpt_neox", "padded_vocabulary:16+norm_eps:0.1", (("padded-vocabulary",), ("norm-epsilon",))),
    ("qwen3", "last_lost+kv:int8", (("prompt-ids",), ("kv-cache",))),
    ("deepseek_v3", "routed_scaling:0.4+hidden_top_k:5",
     (("router-weights", "model-config"), ("truncation",))),
)  # fmt: skip
