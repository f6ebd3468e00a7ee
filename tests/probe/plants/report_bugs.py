"""Faults reported against serving engines and trainers, in families that no earlier plant uses.

Families, faults and the names that count were fixed before the first run of attribution. Kinds come
from public issues, listed in `SOURCES`. The author had read the documentation of attribution, its
limits and the earlier plants, but not the code of its edits. A name counts that a practitioner
would act on correctly; names that attribution does not have yet are listed, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.probe.plants.computing import _modules, add_faults
from tests.probe.plants.unseen_computing import _wrap_prefill

Names = tuple[str, ...]
SOURCES: dict[str, str] = {
    "adapter_dropped": "vllm-project/vllm#55193, vllm-project/vllm#34186",
    "adapter_exchanged": "Lightning-AI/litgpt#891, vllm-project/vllm#36652",
    "adapter_shifted": "huggingface/transformers#24381 (layer offset of a pipeline stage)",
    "awq": "group sizes and zero points of AWQ and GPTQ checkpoints",
    "experts_exchanged": "sgl-project/sglang#25882",
    "first_zero": "NVIDIA/TensorRT-LLM#11727",
    "gate_after_norm": "ggml-org/llama.cpp#15507, vllm-project/vllm#56244",
    "greedy_drafts": "vllm-project/vllm#5131, lablup/mlxcel#902",
    "head_tied": "vllm-project/vllm#51063",
    "left_cut": "huggingface/trl#3601, huggingface/trl#4358",
    "norm_bf16": "sgl-project/sglang#27540",
    "prefix_gap": "waybarrios/vllm-mlx#311",
    "prefix_restart": "vllm-project/vllm-metal#144",
    "prompt_nonce": "locuslab/open-unlearning#98, dimagi/open-chat-studio#3625",
    "router_root": "vllm-project/vllm#44371",
    "sinks_twice": "ROCm/rocm-libraries#12229",
    "thinking_budget": "vllm-project/vllm#20859",
    "value_scale": "NVIDIA-NeMo/Megatron-Bridge#4155",
    "window_plus": "sgl-project/sglang#26147, huggingface/transformers#39408",
    "yarn_factor": "PrimeIntellect-ai/prime-rl#2802",
    "zero_experts_lost": "ml-explore/mlx-lm#508, vllm-project/vllm#28891",
}
"""Where a fault of this kind was reported."""


def _yarn_factor(engine: Any, value: str) -> None:
    """Layers with full attention multiply sines and cosines by yarn's own factor."""
    for _name, module in _modules(engine, "rotary"):
        module.full_attention_attention_scaling *= float(value)


def _updates(folder: str) -> dict[str, Tensor]:
    """The change of each weight by an adapter; alpha is 4, and the rank as well."""
    factors = load_file(Path(folder) / "adapter_model.safetensors")
    downs = [name for name in factors if "lora_A" in name]
    return {
        name.removeprefix("base_model.model.").replace("lora_A.", ""): factors[
            name.replace("lora_A", "lora_B")
        ]
        @ factors[name]
        for name in downs
    }


def _moved(engine: Any, folder: str, target: Callable[[str], str | None]) -> None:
    """Adds each of the adapter's updates to another weight, or to none."""
    with torch.no_grad():
        for name, update in _updates(folder).items():
            engine._model.get_parameter(name).sub_(update)
            other = target(name)
            if other is not None:
                engine._model.get_parameter(other).add_(update)


def _adapter_dropped(engine: Any, value: str) -> None:
    """`FOLDER,PART`: layers of one kind run without the adapter."""
    folder, part = value.rsplit(",", 1)
    _moved(engine, folder, lambda name: None if part in name else name)


def _adapter_shifted(engine: Any, folder: str) -> None:
    """Each layer has the update of the layer before it."""
    count = len(engine._model.base_model.layers)

    def following(name: str) -> str:
        before, _, rest = name.partition("layers.")
        number, _, rest = rest.partition(".")
        return f"{before}layers.{(int(number) + 1) % count}.{rest}"

    _moved(engine, folder, following)


def _adapter_exchanged(engine: Any, folder: str) -> None:
    """Keys have the update of the values."""
    _moved(engine, folder, lambda name: name.replace("v_proj", "k_proj"))


def _head_tied(engine: Any, _: str) -> None:
    """The head's own weights are ignored; embeddings are read as a head."""
    head, embeddings = engine._model.get_output_embeddings(), engine._model.get_input_embeddings()
    with torch.no_grad():
        head.weight.copy_(embeddings.weight)


def _window_plus(engine: Any, more: str) -> None:
    """Windows see a few tokens more."""
    config = engine._model.config
    config.sliding_window += int(more)
    for _name, layer in _modules(engine, "attention"):
        if getattr(layer, "sliding_window", None):
            layer.sliding_window += int(more)


def _sinks_twice(engine: Any, _: str) -> None:
    """Two parts of the keys each add the sink to the sum of weights."""
    found = [each for _, each in _modules(engine, "attention") if each.sinks is not None]
    assert found
    with torch.no_grad():
        for layer in found:
            layer.sinks.add_(math.log(2))


def _value_scale(engine: Any, value: str) -> None:
    for _name, layer in _modules(engine, "attention"):
        assert layer.v_scale != float(value)
        layer.v_scale = float(value)


class _Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def _zero_experts_lost(engine: Any, _: str) -> None:
    """Experts that return their input return zeros."""
    found = [each for each in engine._model.modules() if hasattr(each, "identity_expert")]
    assert found
    for experts in found:
        experts.identity_expert = _Nothing()


def _experts_exchanged(engine: Any, value: str) -> None:
    """`LAYER,ONE,OTHER`: two experts of a layer have each other's weights."""
    layer, one, other = map(int, value.split(","))
    stacked = [
        weight
        for name, weight in engine._model.base_model.layers[layer].named_parameters()
        if "experts" in name and weight.ndim == 3
    ]
    assert stacked
    with torch.no_grad():
        for weight in stacked:
            weight[[one, other]] = weight[[other, one]]


def _positions(move: Callable[[Tensor, int], Tensor]) -> Callable[[Any, str], None]:
    """Positions after a cached part of the prompt, while the engine generates."""

    def fault(engine: Any, cached: str) -> None:
        is_generating = [False]

        def changed(plain: Any, _step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
            is_generating[0] = True
            try:
                return plain(ids, seen, cache)
            finally:
                is_generating[0] = False

        def moved(_module: nn.Module, arguments: Any, named: Any) -> Any:
            if not is_generating[0]:
                return None
            if "position_ids" in named:
                return arguments, named | {"position_ids": move(named["position_ids"], int(cached))}
            return (arguments[0], move(arguments[1], int(cached)), *arguments[2:]), named

        for _name, module in _modules(engine, "rotary"):
            module.register_forward_pre_hook(moved, with_kwargs=True)
        _wrap_prefill(engine, changed)

    return fault


def _restarted(positions: Tensor, cached: int) -> Tensor:
    return torch.where(positions >= cached, positions - cached, positions)


def _one_later(positions: Tensor, cached: int) -> Tensor:
    return torch.where(positions >= cached, positions + 1, positions)


def _awq(engine: Any, size: str) -> None:
    """Weights of layers in 4 bits with a scale and a zero point for each group of inputs."""
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            is_router = name.endswith(("gate.weight", "router.weight"))
            if weight.ndim < 2 or ".layers." not in name or is_router:
                continue
            groups = weight.unflatten(-1, (-1, int(size)))
            low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
            scale = (high - low).clamp(min=1e-8) / 15
            zero = (-low / scale).round()
            codes = ((groups / scale).round() + zero).clamp(0, 15)
            weight.copy_(((codes - zero) * scale).flatten(-2))


def _norm_bf16(engine: Any, _: str) -> None:
    """Norms are computed in bfloat16."""

    def lowered(module: Any) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            low = x.bfloat16()
            low = low * torch.rsqrt(low.pow(2).mean(-1, keepdim=True) + module.eps)
            weight = getattr(module, "weight", None)
            return (low if weight is None else low * weight.bfloat16()).to(x.dtype)

        return forward

    found = [module for _, module in _modules(engine, "rmsnorm")]
    assert found
    for module in found:
        module.forward = lowered(module)


def _router_root(engine: Any, value: str) -> None:
    """A buffer that scales the router's inputs has the value of its initialization."""
    found = [each for each in engine._model.modules() if hasattr(each, "scalar_root_size")]
    assert found
    for router in found:
        router.scalar_root_size = float(value)


def _gate_after_norm(engine: Any, _: str) -> None:
    """State-space outputs are normalized first and gated then."""

    def late(plain: Any) -> Callable[..., Tensor]:
        def forward(x: Tensor, gate: Tensor | None = None) -> Tensor:
            normal: Tensor = plain(x)
            return normal if gate is None else normal * nn.functional.silu(gate)

        return forward

    found = [module for _, module in _modules(engine, "normgated")]
    assert found
    for module in found:
        module.forward = late(module.forward)


add_faults(
    {
        "adapter_dropped": _adapter_dropped,
        "adapter_exchanged": _adapter_exchanged,
        "adapter_shifted": _adapter_shifted,
        "awq": _awq,
        "experts_exchanged": _experts_exchanged,
        "gate_after_norm": _gate_after_norm,
        "head_tied": _head_tied,
        "norm_bf16": _norm_bf16,
        "prefix_gap": _positions(_one_later),
        "prefix_restart": _positions(_restarted),
        "router_root": _router_root,
        "sinks_twice": _sinks_twice,
        "value_scale": _value_scale,
        "window_plus": _window_plus,
        "yarn_factor": _yarn_factor,
        "zero_experts_lost": _zero_experts_lost,
    }
)
ROW_PROCESSORS = ("greedy_drafts", "thinking_budget")


def changed_row(logits: Any, drawn: Sequence[int], mine: Mapping[str, str]) -> Any:
    """The next token's logits after the processors of this set."""
    if "thinking_budget" in mine:  # the end of thinking is forced
        after, token = map(int, mine["thinking_budget"].split(","))
        if len(drawn) == after:
            logits = torch.full_like(logits, -torch.inf).index_fill(-1, torch.tensor([token]), 0.0)
    if "greedy_drafts" in mine:  # a greedy draft is accepted if it is likely enough
        best = logits.argmax()
        if logits.softmax(-1)[best] > float(mine["greedy_drafts"]):
            logits = torch.full_like(logits, -torch.inf).index_fill(-1, best, 0.0)
    return logits


def read_prompts(faults: Mapping[str, str], prompts: list[list[int]]) -> list[list[int]]:
    """The prompts that are really read."""
    if "prompt_nonce" in faults:  # as a template that writes the time of the request
        at = int(faults["prompt_nonce"])
        return [
            [*each[:at], 3 + (17 * number + 5) % 61, *each[at + 1 :]]
            for number, each in enumerate(prompts)
        ]
    if "left_cut" in faults:
        return [each[-int(faults["left_cut"]) :] for each in prompts]
    return prompts


def reported(responses: Sequence[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses with wrong log-probabilities of some tokens."""
    if "first_zero" not in faults:  # the engine that reads the prompt reports none
        return list(responses)
    return [replace(each, logprobs=[0.0, *each.logprobs[1:]]) for each in responses]


_ADAPTER = ("adapter", "lora-adapter", "adapter-layers")
_POSITIONS = ("position-ids", "prefix-caching")
_WINDOW = ("sliding-window", "model-config")
_PROMPT = ("prompt-ids", "long-prompts")
_VALUES = ("model-config", "residual-scale", "value-scale")
_NORM_ORDER = ("norm-order", "gate-order", "gated-norm", "model-config")
SINGLES: tuple[tuple[str, str, Names], ...] = (
    ("laguna", "yarn_factor:1.4159", ("rope-scaling", "rope-base", "model-config")),
    ("mellum", "adapter_dropped:ADAPTER,v_proj", _ADAPTER),
    ("ernie4_5_moe", "adapter_shifted:ADAPTER", (*_ADAPTER, "layer-order")),
    ("granite_swa", "adapter_exchanged:ADAPTER", (*_ADAPTER, "swapped-weights")),
    ("ministral3", "head_tied",
     ("tied-head", "tied-embeddings", "model-config", "swapped-weights")),
    ("granite_swa", "window_plus:1", _WINDOW),
    ("mimo_v2_flash", "sinks_twice", ("attention-sinks", "missing-sinks")),
    ("longcat_flash", "zero_experts_lost",
     ("missing-experts", "zero-experts", "lost-part", "model-config")),
    ("exaone_moe", "experts_exchanged:1,0,2",
     ("swapped-weights", "layer-order", "expert-order", "tensor-order")),
    ("nanochat", "prefix_restart:6", _POSITIONS),
    ("ministral3", "prefix_gap:6", _POSITIONS),
    ("diffllama", "prompt_nonce:3", ("prompt-ids",)),
    ("nanochat", "left_cut:12", _PROMPT),
    ("laguna", "awq:16", ("quantisation",)),
    ("gemma4", "norm_bf16", ("precision", "norm-precision")),
    ("gemma4", "router_root:1",
     ("router-weights", "router-input", "router-scale", "model-config")),
    ("zamba2", "gate_after_norm", _NORM_ORDER),
    ("exaone_moe", "thinking_budget:10,5",
     ("structured-output", "forced-token", "wrong-sampler")),
    ("mellum", "raw+greedy_drafts:0.5", ("speculative-decoding", "wrong-sampler")),
    ("diffllama", "first_zero", ("first-token", "missing-logprobs", "reported-zero")),
)  # fmt: skip
"""Families, faults and accepted names."""
_STALE = ("partial-sync",)
DOUBLES: tuple[tuple[str, str, tuple[Names, ...]], ...] = (
    ("granite_swa", "residual_multiplier:0.3+hidden_temperature:0.9",
     (("residual-scale", "model-config"), ("temperature",))),
    ("mimo_v2_flash", "value_scale:1+kv:fp8", (_VALUES, ("kv-cache",))),
    ("ernie4_5_moe", "adapter_dropped:ADAPTER,v_proj+hidden_top_p:0.9",
     (_ADAPTER, ("truncation",))),
    ("zamba2", "gate_after_norm", (_NORM_ORDER, _STALE)),
    ("nanochat", "left_cut:12+norm_eps:0.1", (_PROMPT, ("norm-epsilon",))),
)  # fmt: skip
"""Families, faults and accepted names; one with a partial sync has a stale layer, too."""
_BFLOAT = {"dtype": "bfloat16"}
HEALTHY: tuple[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("laguna", _BFLOAT, _BFLOAT, {}),
    ("longcat_flash", {}, {"batch_tokens": 200}, {}),
    ("gemma4", {"attention": "eager"}, {}, {"temperature": 0.7}),
    ("mellum", {"adapter": "ADAPTER"}, {"adapter": "ADAPTER", "adapter_use": "merged"}, {}),
)
"""Families, options of either engine and requested sampling of healthy pairs."""
ROUTED = ("laguna", "mimo_v2_flash", "longcat_flash", "gemma4", "ernie4_5_moe", "exaone_moe",
          "mellum")  # fmt: skip
"""Families whose experts are recorded."""
