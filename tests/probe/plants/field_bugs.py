"""Faults reported against real engines and trainers, in families that no earlier plant uses.

Families, faults and the names that count were fixed before the first run of attribution. Kinds
were chosen from public issues, listed in `SOURCES`, that no earlier set contains; the author had
seen the list of what-if edits. A name counts that a practitioner would act on correctly; names
that attribution does not have yet are listed, too.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import _RESTORED, _modules, _wrap_attention, add_faults
from tests.probe.plants.unseen_computing import _older, _wrap_prefill

Names = tuple[str, ...]
NEED_EAGER = {"prompt_bidirectional", "lse_base2", "kv_saturated"}
SOURCES: dict[str, str] = {
    "prompt_bidirectional": "lablup/mlxcel#1001, osaurus-ai/vmlx-swift#185",
    "lse_base2": "sgl-project/sglang#40903, vllm-project/vllm#52796, vllm-project/vllm#28840",
    "kv_saturated": "vllm-project/vllm-xpu-kernels#475, ROCm/vllm#317",
    "gate_up_interleaved": "THUDM/slime#1840",
    "halves_swapped": "ikawrakow/ik_llama.cpp#1408",
    "qkv_grouped": "NVIDIA-NeMo/RL#2802",
    "norm_uncentred": "sgl-project/sglang#11791, ggml-org/llama.cpp#173",
    "norm_centred": "ggml-org/llama.cpp#173",
    "norm_whole": "state-spaces/mamba#910, ggml-org/llama.cpp#15507",
    "norm_weight_lost": "1bit-MONSTER/1bit-MONSTER#1154",
    "time_step_floor": "ml-explore/mlx-lm#1026, huggingface/transformers#35154",
    "router_on_output": "sgl-project/sglang#6274, vllm-project/vllm#16744",
    "tuning_off": "vllm-project/vllm#16439",
    "chunks_ignored": "flashinfer-ai/flashinfer#1004, NVIDIA/TensorRT-LLM#3775",
    "capacity": "deepspeedai/DeepSpeed#6809, NVIDIA/Megatron-LM#5542",
    "rope_table": "pegainfer-project/pegainfer#220",
    "inv_freq_bf16": "NVIDIA-NeMo/Automodel#2549, huggingface/transformers#29496",
    "groups_by_max": "NVIDIA/Megatron-LM#1378, vllm-project/vllm#13474",
    "kv_heads_reversed": "vllm-project/vllm-ascend#3366, sgl-project/sglang#20967",
    "update_misplaced": "thinking-machines-lab/tinker-cookbook#457",
    "conv_foreign": "sgl-project/sglang#24717",
    "state_rows": "sgl-project/sglang#24717 (on #23975)",
    "state_padded": "vllm-project/vllm#55178",
    "last_is_zero": "sgl-project/sglang#130",
    "block_first": "vllm-project/vllm#27615, vllm-project/vllm#38711",
}
"""Where a fault of this kind was reported."""


def _named(engine: Any, *names: str) -> list[Any]:
    found = [
        module for path, module in engine._model.named_modules() if path.rpartition(".")[2] in names
    ]
    assert found, names
    return found


def _prompt_bidirectional(engine: Any, _: str) -> None:
    """Tokens of the prompt see later ones, as without a causal mask in the prefill."""
    prefill = [False]

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        prefill[0] = step == 0
        try:
            return plain(ids, seen, cache)
        finally:
            prefill[0] = False

    _wrap_prefill(engine, changed)

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        if prefill[0] and mask is not None:  # the last token sees all tokens of its prompt
            mask = mask[..., -1:, :].expand(mask.shape)
        return original(layer, q, k, v, mask, *r, **n)

    _wrap_attention(engine, change)


def _lse_base2(engine: Any, value: str) -> None:
    """Attention to the first tokens and to the rest is merged with logarithms of two bases."""
    first = int(value)

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float, **n: Any
    ) -> Any:
        k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
        scores = q @ k.transpose(2, 3) * scaling
        late = torch.ones(scores.shape[-2:]).triu(1 + scores.shape[-1] - scores.shape[-2]).bool()
        bias = torch.zeros(late.shape).masked_fill(late, -1e30)[None, None]
        scores = scores + (bias if mask is None else mask[..., : k.shape[2]].clamp(min=-1e30))
        shown = (bias if mask is None else mask)[:, :, -1:] > -1e29  # what the last token sees
        is_first = shown & (shown.cumsum(-1) <= first)
        parts = [scores.masked_fill(where, -1e30) for where in (~is_first, is_first)]
        sums = torch.stack([part.logsumexp(-1) for part in parts], -1) / math.log(2)
        shares = sums.softmax(-1)
        weights = sum(part.softmax(-1) * shares[..., [n]] for n, part in enumerate(parts))
        return (weights @ v).transpose(1, 2).contiguous(), weights

    _wrap_attention(engine, change)


def _kv_saturated(engine: Any, value: str) -> None:
    """Keys and values in fp8 with a scale that is too small for the largest."""
    most = float(value)

    def stored(x: Tensor) -> Tensor:
        scale = most / 448
        return (x.clamp(-most, most) / scale).to(torch.float8_e4m3fn).to(x.dtype) * scale

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        return original(layer, q, stored(k), stored(v), mask, *r, **n)

    _wrap_attention(engine, change)


def _gate_up_interleaved(engine: Any, _: str) -> None:
    """Rows of gate and up projection alternate in a tensor that is read as two halves."""
    with torch.no_grad():
        for module in _named(engine, "gate_up_proj"):
            rows = module.weight.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)
            module.weight.copy_(rows.clone())


def _halves_swapped(engine: Any, value: str) -> None:
    """The halves of a fused gate and up projection are exchanged."""
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            if value in name:
                weight.copy_(weight.roll(weight.shape[-2] // 2, -2))


def _qkv_grouped(engine: Any, _: str) -> None:
    """Queries, keys and values in a row are read as groups of queries with a key and a value."""
    with torch.no_grad():
        for layer in _named(engine, "self_attn"):
            parts = [layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight]
            groups = layer.config.num_key_value_heads
            fused = torch.cat(parts).unflatten(0, (groups, -1))
            sizes = [len(part) // groups for part in parts]
            for part, rows in zip(parts, fused.split(sizes, 1), strict=True):
                part.copy_(rows.flatten(0, 1))


def _norm_uncentred(engine: Any, _: str) -> None:
    """Layer norms divide by the root mean square, and subtract no mean."""

    def plain(module: Any) -> Any:
        def forward(x: Tensor) -> Tensor:
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
            weight, bias = (getattr(module, name, None) for name in ("weight", "bias"))
            x = x if weight is None else x * weight
            return x if bias is None else x + bias

        return forward

    for _name, module in _modules(engine, "layernorm"):
        module.forward = plain(module)


def _norm_centred(engine: Any, _: str) -> None:
    """Norms subtract the mean first, as a layer norm does."""
    found = [module for _, module in _modules(engine, "rmsnorm")]
    assert found
    for module in found:
        module.register_forward_pre_hook(lambda _m, x: (x[0] - x[0].mean(-1, keepdim=True), *x[1:]))


def _norm_whole(engine: Any, _: str) -> None:
    """A norm by groups is taken over the whole width."""
    found = [module for _, module in _modules(engine, "norm") if hasattr(module, "group_size")]
    assert found
    for module in found:
        assert module.group_size < len(module.weight)
        module.group_size = len(module.weight)


def _norm_weight_lost(engine: Any, name: str) -> None:
    """The weights of one kind of norm are 1."""
    found = [module for _, module in _modules(engine, name)]
    assert found
    with torch.no_grad():
        for module in found:
            module.weight.fill_(1)


def _time_step_floor(engine: Any, value: str) -> None:
    """Time steps of state-space layers have a lower bound that is not the model's."""
    found = [each for each in engine._model.modules() if hasattr(each, "time_step_limit")]
    assert found
    for module in found:
        module.time_step_limit = (float(value), math.inf)


def _router_on_output(engine: Any, _: str) -> None:
    """Outputs of experts, not their inputs, are scaled by the router."""

    def forward_of(block: Any) -> Any:
        def forward(hidden: Tensor) -> Any:
            hidden = hidden.reshape(-1, block.hidden_dim)
            scores, logits = block.router(hidden)
            count = scores.shape[1]
            out = block.experts(hidden.repeat(count, 1)).unflatten(0, (count, -1))
            routed = (out * scores.T[..., None]).sum(0)
            return block.shared_expert(hidden) + routed, logits

        return forward

    for block in _named(engine, "feed_forward"):
        block.forward = forward_of(block)


def _tuning_off(engine: Any, _: str) -> None:
    for layer in _named(engine, "self_attn"):
        assert layer.attn_temperature_tuning
        layer.attn_temperature_tuning = False


def _chunks_ignored(engine: Any, _: str) -> None:
    config = engine._model.config
    assert "chunked_attention" in config.layer_types
    config.layer_types = ["full_attention" for _ in config.layer_types]


def _capacity(engine: Any, factor: str) -> None:
    """An expert takes no more tokens of a batch than its share times a factor."""

    def dropped(experts: Any, inputs: Any) -> Any:
        hidden, chosen, weights, *rest = inputs
        count = experts.num_experts
        most = math.ceil(float(factor) * chosen.numel() / count)
        taken = nn.functional.one_hot(chosen.flatten(), count).cumsum(0)
        place = taken.gather(1, chosen.flatten()[:, None]).view(chosen.shape)
        return (hidden, chosen, weights * (place <= most), *rest)

    assert engine._routers.expert_modules
    for experts in engine._routers.expert_modules:
        experts.register_forward_pre_hook(dropped)


def _rope_table(engine: Any, length: str) -> None:
    """Positions beyond the table of sines and cosines have its last row."""

    def within(_module: nn.Module, inputs: Any, named: Any) -> Any:
        if "position_ids" in named:
            return inputs, named | {"position_ids": named["position_ids"].clamp(max=int(length))}
        return (inputs[0], inputs[1].clamp(max=int(length)), *inputs[2:]), named

    for _name, module in _modules(engine, "rotary"):
        module.register_forward_pre_hook(within, with_kwargs=True)


def _inv_freq_bf16(engine: Any, _: str) -> None:
    for _name, module in _modules(engine, "rotary"):
        module.inv_freq = module.inv_freq.bfloat16().float()


def _groups_by_max(engine: Any, _: str) -> None:
    """A group of experts has the score of its best one, not of its best two."""

    def forward_of(router: Any) -> Any:
        def forward(hidden: Tensor) -> Any:
            logits = nn.functional.linear(hidden.flatten(0, -2).float(), router.weight.float())
            scores = logits.sigmoid()
            groups = (scores + router.e_score_correction_bias).unflatten(-1, (router.num_group, -1))
            kept = groups.amax(-1).topk(router.topk_group, -1).indices
            mask = torch.zeros(groups.shape[:-1]).scatter(1, kept, 1.0)[..., None].bool()
            chosen = groups.masked_fill(~mask, -math.inf).flatten(1).topk(router.top_k, -1).indices
            weights = scores.gather(1, chosen)
            if router.norm_topk_prob:
                weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
            return logits, weights * router.routed_scaling_factor, chosen

        return forward

    assert engine._routers.modules
    for router in engine._routers.modules:
        router.forward = forward_of(router)


def _kv_heads_reversed(engine: Any, _: str) -> None:
    with torch.no_grad():
        for layer in _named(engine, "self_attn"):
            for projection in (layer.k_proj, layer.v_proj):
                heads = projection.weight.unflatten(0, (-1, layer.head_dim))
                projection.weight.copy_(heads.flip(0).flatten(0, 1))


def _update_misplaced(engine: Any, path: str) -> None:
    """The last update of the up projections was added to the gates."""
    older = dict(_older(path)._model.named_parameters())
    current = dict(engine._model.named_parameters())
    names = [name for name in current if name.endswith("up_proj.weight")]
    assert names
    with torch.no_grad():
        for name in names:
            current[name.replace("up_proj", "gate_proj")] += current[name] - older[name]
            current[name].copy_(older[name])


def _conv_foreign(engine: Any, _: str) -> None:
    """Convolutions of a prompt begin with the last state of another request."""
    source = sys.modules[type(engine._model).__module__]
    plain_conv = source.causal_conv1d_fn
    lengths: list[Tensor] = []

    def convolved(x: Tensor, weight: Tensor, *rest: Any, **named: Any) -> Tensor:
        if not lengths:
            return plain_conv(x, weight, *rest, **named)
        before = weight.shape[-1] - 1
        padded = nn.functional.pad(x, (before, 0))
        starts = x.shape[-1] - lengths[0]
        for row, start in enumerate(starts.tolist()):
            padded[row, :, start : start + before] = x[row - 1, :, -before:]
        return plain_conv(padded, weight, *rest, **named)[..., before:]

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        lengths[:] = [seen.sum(1)] if step == 0 else []
        try:
            return plain(ids, seen, cache)
        finally:
            lengths.clear()

    _wrap_prefill(engine, changed)
    source.causal_conv1d_fn = convolved
    _RESTORED.append((source, "causal_conv1d_fn", plain_conv))


def _states(cache: Any) -> Iterator[Tensor]:
    kept = [getattr(layer, name, {}) for layer in cache.layers for name in _STATES]
    assert any(kept)
    for states in kept:
        yield from (state for state in states.values() if state is not None)


_STATES = ("conv_states", "recurrent_states")


def _state_rows(engine: Any, _: str) -> None:
    """After the prompt, each request continues with the state of its neighbor."""

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        logits, cache = plain(ids, seen, cache)
        for state in _states(cache) if step == 0 else ():
            state.copy_(state.roll(1, 0))
        return logits, cache

    _wrap_prefill(engine, changed)


def _state_padded(engine: Any, count: str) -> None:
    """States are kept after placeholders that fill the prompt up; attention never sees these."""

    def changed(plain: Any, step: int, ids: Tensor, seen: Tensor, cache: Any) -> Any:
        logits, cache = plain(ids, seen, cache)
        if step == 0:
            further = copy.deepcopy(cache)
            more = torch.zeros(len(ids), int(count), dtype=ids.dtype)
            plain(more, torch.cat([seen, torch.ones_like(more)], 1), further)
            for state, after in zip(_states(cache), _states(further), strict=True):
                state.copy_(after)
        return logits, cache

    _wrap_prefill(engine, changed)


add_faults(
    {
        "capacity": _capacity,
        "chunks_ignored": _chunks_ignored,
        "conv_foreign": _conv_foreign,
        "gate_up_interleaved": _gate_up_interleaved,
        "groups_by_max": _groups_by_max,
        "halves_swapped": _halves_swapped,
        "inv_freq_bf16": _inv_freq_bf16,
        "kv_heads_reversed": _kv_heads_reversed,
        "kv_saturated": _kv_saturated,
        "lse_base2": _lse_base2,
        "norm_centred": _norm_centred,
        "norm_uncentred": _norm_uncentred,
        "norm_weight_lost": _norm_weight_lost,
        "norm_whole": _norm_whole,
        "prompt_bidirectional": _prompt_bidirectional,
        "qkv_grouped": _qkv_grouped,
        "rope_table": _rope_table,
        "router_on_output": _router_on_output,
        "state_padded": _state_padded,
        "state_rows": _state_rows,
        "time_step_floor": _time_step_floor,
        "tuning_off": _tuning_off,
        "update_misplaced": _update_misplaced,
    }
)


def reported(responses: Sequence[Any], raw: Any, faults: Mapping[str, str]) -> list[Any]:
    """The responses with wrong log-probabilities of some tokens.

    Args:
        responses: as they were drawn.
        raw: scores responses at temperature 1.
        faults: by name.
    """
    changed = list(responses)
    if "last_is_zero" in faults:  # the last token is not known yet when its value is read
        ids = [replace(each, response_ids=[*each.response_ids[:-1], 0]) for each in changed]
        changed = [
            replace(each, logprobs=[*each.logprobs[:-1], other.logprobs[-1]])
            for each, other in zip(changed, raw(ids), strict=True)
        ]
    if "block_first" in faults:  # one value for all tokens that a step accepted
        size = int(faults["block_first"])
        changed = [
            replace(each, logprobs=[each.logprobs[n - n % size] for n in range(len(each.logprobs))])
            for each in changed
        ]
    return changed


_LAYOUT = ("tensor-order", "weight-layout", "swapped-weights")
_NORM_KIND = ("norm-type", "norm-centering", "norm-mean")
_STATE_LOST = ("state-cache", "conv-state", "generation-path")
COMPUTED: tuple[tuple[str, str, Names], ...] = (
    ("vaultgemma", "prompt_bidirectional",
     ("causal-mask", "attention-mask", "bidirectional-attention", "generation-path")),
    ("youtu", "lse_base2:8",
     ("attention-merge", "cascade-attention", "context-parallel", "prefix-caching")),
    ("solar_open", "kv_saturated:1", ("kv-cache",)),
    ("glm", "gate_up_interleaved", ("gate-layout", *_LAYOUT)),
    ("granitemoehybrid", "halves_swapped:input_linear", ("gate-layout", *_LAYOUT)),
    ("hyperclovax", "qkv_grouped", ("qkv-layout", "head-order", *_LAYOUT)),
    ("olmo", "norm_uncentred", _NORM_KIND),
    ("afmoe", "norm_centred", _NORM_KIND),
    ("nemotron_h", "norm_whole", ("norm-groups", "norm-parts", "qk-norm", "model-config")),
    ("granitemoehybrid", "norm_weight_lost:rmsnormgated",
     ("norm-weights", "norm-offset", "missing-norm")),
    ("nemotron_h", "time_step_floor:0.7", ("time-step", "model-config")),
    ("llama4", "router_on_output", ("router-weights", "router-input")),
    ("llama4", "tuning_off", ("attention-scale", "model-config")),
    ("llama4", "chunks_ignored",
     ("sliding-window", "chunked-attention", "attention-chunk", "model-config")),
    ("ministral", "rope_table:24", ("position-ids", "position-limit", "rope-table")),
    ("flex_olmo", "inv_freq_bf16", ("rope-precision", "precision")),
    ("solar_open", "groups_by_max", ("router-groups", "group-scores")),
    ("afmoe", "kv_heads_reversed", ("head-order", "kv-head-order", *_LAYOUT)),
    ("lfm2_moe", "conv_foreign", (*_STATE_LOST, "first-tokens")),
    ("lfm2_moe", "state_rows", _STATE_LOST),
    ("bamba", "state_padded:3", (*_STATE_LOST, "attended-padding", "prompt-ids")),
)  # fmt: skip
"""Families, faults of the sampler's forward pass, and accepted names."""
LEARNER: tuple[tuple[str, str, Names], ...] = (
    ("hunyuan_moe", "capacity:1",
     ("expert-capacity", "dropped-tokens", "router-capacity", "batch-variance")),
)  # fmt: skip
"""The same for the learner's faults."""
WEIGHTS: tuple[tuple[str, str, Names], ...] = (
    ("olmo", "update_misplaced:STALE", ("partial-sync", *_LAYOUT)),
)
"""The same with an older checkpoint, which is given."""
SERVED: tuple[tuple[str, str, Names], ...] = (
    ("jais2", "last_is_zero", ("eos-handling", "last-token")),
    ("hyperclovax", "block_first:3",
     ("repeated-values", "speculative-decoding", "shuffled", "off-by-one")),
)  # fmt: skip
"""The same for faults of reporting."""
_STALE = ("partial-sync",)
DOUBLES: tuple[tuple[str, str, tuple[Names, ...]], ...] = (
    ("glm", "gate_up_interleaved+hidden_temperature:0.9",
     (("gate-layout", *_LAYOUT), ("temperature",))),
    ("olmo", "norm_uncentred+begun", (_NORM_KIND, ("prompt-ids",))),
    ("ministral", "rope_table:24+rounded:2",
     (("position-ids", "position-limit", "rope-table"), ("rounding",))),
    ("llama4", "router_on_output+hidden_top_p:0.9",
     (("router-weights", "router-input"), ("truncation",))),
    ("nemotron_h", "norm_whole",
     (("norm-groups", "norm-parts", "qk-norm", "model-config"), _STALE)),
    ("hyperclovax", "hidden_temperature:0.8+hidden_top_p:0.9", (("temperature",), ("truncation",))),
    ("solar_open", "groups_by_max+kv_saturated:1",
     (("router-groups", "group-scores"), ("kv-cache",))),
)  # fmt: skip
"""Families, faults and accepted names; one with a partial sync has a stale layer, too."""
HEALTHY: tuple[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("nemotron_h", {}, {}, {}),
    ("llama4", {"dtype": "bfloat16"}, {"dtype": "bfloat16"}, {}),
    ("lfm2_moe", {}, {"batch_tokens": 200}, {"temperature": 0.7}),
    ("granitemoehybrid", {"attention": "eager"}, {}, {}),
)
"""Families, options of either engine and requested sampling of healthy pairs."""
ROUTED = ("llama4", "hunyuan_moe", "lfm2_moe", "granitemoehybrid", "solar_open", "flex_olmo",
          "afmoe")  # fmt: skip
"""Families whose experts are recorded."""
