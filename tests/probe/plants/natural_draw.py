"""A twelfth set: faults in the proportion in which reinforcement learning meets them.

An engineer who runs vLLM or SGLang against FSDP or Megatron would plant these to examine the probe:
settings that a port ignores, a sync that loses or confuses tensors, quantised weights and caches,
prompts, defaults of a server, adapters, batches of a learner. Kinds were neither preferred nor
avoided for being known. Families, faults and names were fixed and committed before the first run of
attribution on them. The author had read neither attribution's code nor its documentation. Known
were a list of the names of causes, the list of faults of the first catalogue, and the eleventh set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import _head, _layers, _modules, _wrap_attention, add_faults
from tests.probe.plants.draw import ADAPTER, Drawn, Names
from tests.probe.plants.issue_bugs import _modules_with

GROUP = 32
"""Inputs that share a scale in four-bit weights."""


def _rope_default(engine: Any, theta: str) -> None:
    """A plain rotation: neither the checkpoint's base nor its scaling is read."""
    for _, rotary in _modules(engine, "rotary"):
        count = rotary.inv_freq.numel()
        rotary.inv_freq = float(theta) ** -(torch.arange(count) / count)
        rotary.attention_scaling = 1.0


def _rope_full(engine: Any, _: str) -> None:
    """The whole head is rotated, although the checkpoint means a part."""
    for _, rotary in _modules(engine, "rotary"):
        count = engine._model.config.head_dim // 2
        assert count > rotary.inv_freq.numel()
        rotary.inv_freq = 10000.0 ** -(torch.arange(count) / count)


def _old_weights(path: str) -> dict[str, Tensor]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return {name: weight.detach() for name, weight in model.named_parameters()}


def _old_head(engine: Any, path: str) -> None:
    """The sync writes embeddings; the head, a tensor of its own in the engine, stays old."""
    old = next(weight for name, weight in _old_weights(path).items() if "embed" in name)
    _head(engine._model).weight = nn.Parameter(old.clone())


def _old_prefix(engine: Any, path: str) -> None:
    """Keys and values of prompts were cached before the sync; their last token is computed anew."""
    old, model, plain = _old_weights(path), engine._model, engine._split.next_logits

    def exchange() -> None:
        for name, weight in model.named_parameters():
            weight.data, old[name] = old[name], weight.data

    def next_logits(ids: Tensor, seen: Tensor, cache: Any) -> Any:
        if cache is not None:
            return plain(ids, seen, cache)
        exchange()
        _, kept = plain(ids[:, :-1], seen[:, :-1], None)
        exchange()
        return plain(ids[:, -1:], seen, kept)

    engine._split.next_logits = next_logits


def _router_correction_lost(engine: Any, _: str) -> None:
    """Routers' corrections are buffers, which a sync of parameters never sends."""
    lost = [b for name, b in engine._model.named_buffers() if name.endswith("correction_bias")]
    assert lost
    for buffer in lost:
        buffer.zero_()


def _weights_not_normalised(engine: Any, _: str) -> None:
    for block in _modules_with(engine, "norm_topk_prob"):
        assert block.norm_topk_prob
        block.norm_topk_prob = False


def _four_bits(engine: Any, _: str) -> None:
    """Symmetric four-bit weights with a scale per group of inputs, in all blocks."""
    with torch.no_grad():
        for layer in _layers(engine):
            for name, weight in layer.named_parameters():
                if weight.ndim > 1 and weight.shape[-1] % GROUP == 0 and "gate.weight" not in name:
                    groups = weight.unflatten(-1, (-1, GROUP))
                    scale = groups.abs().amax(-1, keepdim=True) / 7
                    weight.copy_(((groups / scale).round() * scale).flatten(-2))


def _qkv_by_group(engine: Any, _: str) -> None:
    """Fused rows as Megatron orders them (queries, key, value of each group) are read in order."""
    config = engine._model.config
    groups = config.num_key_value_heads
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    rows = torch.arange((heads + 2 * groups) * size)
    q, k, v = rows.split([heads * size, groups * size, groups * size])
    parts = [part.view(groups, -1) for part in (q, k, v)]
    order = torch.cat(parts, dim=1).flatten()
    with torch.no_grad():
        for module in _modules_with(engine, "qkv_proj"):
            module.qkv_proj.weight.copy_(module.qkv_proj.weight[order].clone())


def _kv_heads_in_turn(engine: Any, _: str) -> None:
    """Query head h reads key head h modulo their number, as after wrong replication of keys."""

    def change(
        original: Any, layer: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, *r: Any, **n: Any
    ) -> Any:
        count = k.shape[1]
        order = [head for key in range(count) for head in range(key, q.shape[1], count)]
        out, weights = original(layer, q[:, order], k, v, mask, *r, **n)
        back = torch.empty_like(out)
        back[:, :, order] = out
        return back, weights

    _wrap_attention(engine, change)


def _sinks_ignored(engine: Any, _: str) -> None:
    with torch.no_grad():
        for attention in _modules_with(engine, "sinks"):
            attention.sinks.fill_(torch.finfo(attention.sinks.dtype).min / 2)


def _adapter_part_lost(engine: Any, name: str) -> None:
    """The engine knows no module of this name, since it fuses it, and drops its update."""
    lost = [m for n, m in engine._model.named_modules() if n.endswith(name) and m._forward_hooks]
    assert lost
    for module in lost:
        module._forward_hooks.clear()


def _positions_from_padding(engine: Any, _: str) -> None:
    """Prompts are padded on the left, padding is masked, and positions count it, too."""
    plain, hidden = engine.score, engine._split.hidden

    def score(responses: Sequence[Any], *rest: Any) -> list[Any]:
        width = max(len(each.prompt_ids) for each in responses)
        scored: dict[int, Any] = {}
        for length in {len(each.prompt_ids) for each in responses}:
            mine = [n for n, each in enumerate(responses) if len(each.prompt_ids) == length]

            def shifted(ids: Tensor, *_: Any, start: int = width - length) -> Tensor:
                at = torch.arange(ids.shape[1]) + start
                out: Tensor = hidden(ids, at.expand(ids.shape))
                return out

            engine._split.hidden = shifted
            scored |= dict(zip(mine, plain([responses[n] for n in mine], *rest), strict=True))
        engine._split.hidden = hidden
        return [scored[number] for number in range(len(responses))]

    engine.score = score


def _training_mode(engine: Any, _: str) -> None:
    """`model.eval()` was forgotten; the configuration asks for dropout."""
    engine._model.train()


def _without_qkv_bias(engine: Any, _: str) -> None:
    with torch.no_grad():
        for attention in _modules_with(engine, "q_proj"):
            for part in (attention.q_proj, attention.k_proj, attention.v_proj):
                part.bias.zero_()


def _residual_one(engine: Any, _: str) -> None:
    for layer in _layers(engine):
        assert layer.residual_multiplier != 1.0
        layer.residual_multiplier = 1.0


def _expert_pair_exchanged(engine: Any, value: str) -> None:
    """Two experts of a layer are exchanged, but not their rows in the router."""
    block = _layers(engine)[int(value)]
    experts = [module for module in block.modules() if hasattr(module, "gate_up_proj")]
    with torch.no_grad():
        for weight in (weight for module in experts for weight in module.parameters()):
            order = list(range(len(weight)))
            order[:2] = order[1], order[0]
            weight.copy_(weight[order].clone())


def _final_norm_plus_one(engine: Any, _: str) -> None:
    """The one of the final norm is in the converted weight and in the kernel."""
    with torch.no_grad():
        engine._model.base_model.norm.weight.add_(1.0)


def _summed_in_parts(engine: Any, value: str) -> None:
    """No fault: projections back to the stream are sums over ranks, in the model's precision."""
    for name, module in engine._model.named_modules():
        if name.endswith(("o_proj", "down_proj")):

            def forward(x: Tensor, module: Any = module) -> Tensor:
                halves = x.chunk(int(value), -1), module.weight.chunk(int(value), -1)
                parts = [nn.functional.linear(a, w) for a, w in zip(*halves, strict=True)]
                out = sum(parts[1:], parts[0])
                return out if module.bias is None else out + module.bias

            module.forward = forward


def reported(responses: list[Any], raw: Any, faults: Mapping[str, str]) -> list[Any]:
    """The responses with the values before temperature, although the engine says processed."""
    if "before_temperature" not in faults:
        return responses
    ones = raw(responses)
    return [replace(each, logprobs=one.logprobs) for each, one in zip(responses, ones, strict=True)]


add_faults(
    {
        "adapter_part_lost": _adapter_part_lost,
        "router_correction_lost": _router_correction_lost,
        "expert_pair_exchanged": _expert_pair_exchanged,
        "final_norm_plus_one": _final_norm_plus_one,
        "four_bits": _four_bits,
        "kv_heads_in_turn": _kv_heads_in_turn,
        "old_head": _old_head,
        "old_prefix": _old_prefix,
        "positions_from_padding": _positions_from_padding,
        "qkv_by_group": _qkv_by_group,
        "residual_one": _residual_one,
        "rope_default": _rope_default,
        "rope_full": _rope_full,
        "sinks_ignored": _sinks_ignored,
        "summed_in_parts": _summed_in_parts,
        "training_mode": _training_mode,
        "weights_not_normalised": _weights_not_normalised,
        "without_qkv_bias": _without_qkv_bias,
    }
)
NEED_EAGER = {"kv_heads_in_turn"}

_EXPERTS = {"weights": "STALE", "weights_only": r"mlp\.experts"}
_LAYOUT = ("weight-layout", "head-order", "tensor-order", "swapped-weights", "parallel-layout")
_ORDER = ("expert-order", "swapped-weights", "tensor-order")
_PACKED = ("packing", "packed-sequences", "prompt-ids", "causal-mask", "attended-padding")
_PREFIX = ("prefix-caching", "stale-weights", "mixed-weights", "one-phase", "kv-cache")
_ROTARY = ("partial-rotary", "rotary-part", "rope-part", "rope-dimensions", "rope-layout")
SINGLES: tuple[tuple[str, str, Names], ...] = (
    ("olmo3", "without_window", ("sliding-window",)),
    ("iquestcoder", "rope_default:10000", ("rope-base",)),
    ("apertus_llama3", "rope_default:10000", ("rope-scaling", "rope-base")),
    ("granite_tied", "old_head:STALE", ("tied-head", "partial-sync", "stale-weights")),
    ("dots1", "router_correction_lost", ("router-bias",)),
    ("glm4_moe", "weights_not_normalised", ("router-weights",)),
    ("nemotron", "kv:fp8", ("kv-cache",)),
    ("hunyuan", "four_bits", ("quantisation",)),
    ("gemma3", "begun", ("prompt-ids",)),
    ("olmo2", "shift:1", ("off-by-one",)),
    ("arcee", "old_prefix:STALE", _PREFIX),
    ("phi3", "qkv_by_group", _LAYOUT),
    ("cwm", "kv_heads_in_turn", ("head-order", "head-mapping", "parallel-layout", "weight-layout")),
)
"""Families, faults of the sampler, and accepted names."""
WEIGHTS: tuple[tuple[str, dict[str, Any], bool, Names], ...] = (
    ("ernie4_5_moe", _EXPERTS, True, ("partial-sync",)),
    ("smollm3", {"weights": "STALE"}, False, ("stale-weights", "weight-update")),
)
"""Families, options of the sampler, whether the older checkpoint is given, and accepted names."""
SERVED: tuple[tuple[str, str, dict[str, Any], Names], ...] = (
    ("cohere", "before_temperature", {"temperature": 0.7}, ("raw-logprobs", "temperature")),
)
"""Families, faults, requested sampling and accepted names."""
ADAPTERS: tuple[tuple[str, str, Names], ...] = (
    ("stablelm", "adapter_part_lost:v_proj", ("adapter", "adapter-part", "missing-adapter")),
)
"""Families, faults and accepted names, with an adapter on both sides."""
LEARNER: tuple[tuple[str, str, Names], ...] = (
    ("opt", "positions_from_padding", ("position-ids", "position-embedding")),
    ("internlm3", "packed", _PACKED),
    ("gpt_oss", "sinks_ignored", ("attention-sinks",)),
)
"""Families, faults of the learner, and accepted names."""
DOUBLES: tuple[tuple[str, str, str, dict[str, Any], tuple[Names, ...]], ...] = (
    (
        "qwen2", "without_qkv_bias+repetition:1.1", "sampler", {},
        (("missing-bias",), ("repetition-penalty", "requested-penalties", "sampling-penalties")),
    ),
    ("glm4", "rope_full+kv:fp8", "sampler", {}, (_ROTARY, ("kv-cache",))),
    ("granite_tied", "residual_one+begun", "sampler", {}, (("residual-scale",), ("prompt-ids",))),
    ("phimoe", "expert_pair_exchanged:1+four_bits", "sampler", {}, (_ORDER, ("quantisation",))),
    (
        "vaultgemma", "final_norm_plus_one+hidden_top_k:8", "sampler", {},
        (("norm-offset", "norm-weights", "final-norm"), ("truncation", "top-k")),
    ),
    (
        "xglm", "training_mode+temperature_twice", "learner", {"temperature": 0.8},
        (("nondeterminism", "dropout"), ("temperature",)),
    ),
)  # fmt: skip
"""Families, faults, side, requested sampling and accepted names."""
_BFLOAT, _HALF = {"dtype": "bfloat16"}, {"dtype": "float16"}
HEALTHY: tuple[tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("apertus_llama3", "", {**_BFLOAT, "attention": "eager"}, _BFLOAT, {}),
    ("glm4_moe", "", _BFLOAT, {**_BFLOAT, "batch_tokens": 300}, {}),
    ("internlm3", "", {**_HALF, "batch_rows": 5}, {**_HALF, "attention": "eager"}, {}),
    ("falcon_h1", "", {"batch_rows": 3}, {}, {"temperature": 0.9}),
    ("cohere", "summed_in_parts:2", _BFLOAT, _BFLOAT, {}),
)
"""Families, faults, options of either engine and requested sampling of healthy pairs."""
ROUTED = ("dots1", "ernie4_5_moe", "glm4_moe", "gpt_oss", "phimoe")
"""Families whose experts are recorded."""


def pairs() -> Iterator[Drawn]:
    """All pairs."""
    group = "natural-draw"
    for family, fault, options, others, sampling in HEALTHY:
        yield Drawn(
            family, fault, (), f"{group}-healthy", options=options, others=others,
            sampling=sampling,
        )  # fmt: skip
    for side, faults in (("sampler", SINGLES), ("learner", LEARNER)):
        for family, fault, names in faults:
            yield Drawn(family, fault, (names,), group, side)
    for family, options, is_given, names in WEIGHTS:
        yield Drawn(family, "", (names,), group, stale=is_given, options=options)
    for family, fault, sampling, names in SERVED:
        yield Drawn(family, fault, (names,), group, sampling=sampling)
    for family, fault, names in ADAPTERS:
        yield Drawn(family, fault, (names,), group, options=ADAPTER, others=ADAPTER)
    for family, fault, side, sampling, accepted in DOUBLES:
        yield Drawn(family, fault, accepted, f"{group}-double", side, sampling=sampling)
