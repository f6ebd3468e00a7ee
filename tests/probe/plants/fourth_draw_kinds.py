"""The kinds of faults that `fourth_draw` draws from, with their frequencies.

The groups and their weights are those of `second_draw_kinds`: threads of public issue trackers. The
kinds within a group are common ones of all earlier draws and new ones; how a group's weight is
divided among them is an estimate of how often each is reported.
"""

from __future__ import annotations

from typing import Any

from tests.probe.plants.draw import ADAPTER, Groups, Healthy, weighted
from tests.probe.plants.draw import fault as _fault
from tests.probe.plants.draw import split as _families
from tests.probe.plants.draw import stale as _stale
from tests.probe.plants.fourth_draw_families import FOURTH_DRAW_FAMILIES
from tests.probe.plants.second_draw_kinds import _ALL as _KNOWN
from tests.probe.plants.second_draw_kinds import (
    _BIASED,
    _CORRECTED,
    _OLD,
    _PARTIAL,
    _PATTERNED,
    _SCALED,
    _TIED,
    _WINDOWED,
    _old,
)
from tests.probe.plants.second_draw_kinds import _DENSE as _KNOWN_DENSE
from tests.probe.plants.second_draw_kinds import _EXPERTS as _KNOWN_EXPERTS
from tests.probe.plants.third_draw_kinds import (
    _ADAPTER,
    _CACHE,
    _FEW_BITS,
    _LAYOUT,
    _MASK,
    _MISSING,
    _PENALTY,
    _ROPE,
    _SHUFFLED,
    _WINDOW,
)
from tests.probe.plants.third_draw_kinds import _GATED as _KNOWN_GATED
from tests.probe.plants.third_draw_kinds import _KEYED as _KNOWN_KEYED
from tests.probe.plants.third_draw_kinds import _OTHER as _UNUSUAL
from tests.probe.plants.third_draw_kinds import _PLAIN as _KNOWN_PLAIN

NEW = tuple(FOURTH_DRAW_FAMILIES)
_ALL = (*_KNOWN, *NEW)
_DENSE = (*_KNOWN_DENSE, "beam", "gemma4_unified")
_EXPERTS = (*_KNOWN_EXPERTS, "aria")
_GATED = (*_KNOWN_GATED, "beam", "gemma4_unified")
_KEYED = (*_KNOWN_KEYED, "aria", "beam")
_PLAIN = (*_KNOWN_PLAIN, "beam", "aria")
_UNTIED = tuple(each for each in _ALL if each not in _TIED)
_FUSED = tuple(
    each
    for each in (*_KNOWN_EXPERTS, "aria")
    if each not in ("granitemoe", "granitemoeshared", "granitemoe_swa", "longcat_flash")
)
_ROTATED = tuple(each for each in _ALL if each not in ("inkling2", *_UNUSUAL))
_GROUPED_HEADS = _families(
    "llama mistral qwen3 gemma3 cohere2 granite olmo3 smollm3 qwen2 exaone4 arcee helium seed_oss"
    " gemma apertus cwm ministral hyperclovax mixtral qwen3_moe glm4_moe dots1 aria beam"
)
_SILU = _families(
    "llama mistral qwen3 cohere2 granite olmo2 olmo3 smollm3 qwen2 exaone4 ernie4_5 helium seed_oss"
    " cohere hunyuan cwm olmo ministral hyperclovax internlm3 iquestcoder llama_tied"
)
_LORA: dict[str, Any] = {"options": ADAPTER, "others": ADAPTER}
_ANY: dict[str, Any] = {"temperature": None}
_ORDER = ("swapped-weights", "layer-order", "tensor-order", "partial-sync")
_HEADS = ("head-order", "kv-heads", "lost-head", "lost-part", "duplicated-heads", "partial-sync")
_SCALE = ("attention-scale", "rope-scaling", "model-config")
_STATIC = (*_FEW_BITS, "activation-quantisation", "activation-limit", "precision")
_SCALED_ROPE = ("llama_scaled", "apertus_llama3", "qwen3_yarn")

GROUPS: Groups = {
    "precision, caches and weights in few bits": (15, (
        _fault("dtype:bfloat16", 2, _ALL, "precision"),
        _fault("fp8_products:32", 2, _ALL, *_FEW_BITS, "precision"),
        _fault("zero_point:16", 2, _ALL, *_FEW_BITS),
        _fault("experts_int4:16", 1, _FUSED, *_FEW_BITS),
        _fault("int8_tensor", 1, _ALL, *_FEW_BITS),
        _fault("cast_fp8", 2, _ALL, *_FEW_BITS, "weight-precision", "precision"),
        _fault("static_scale:{x}", 1, _DENSE, *_STATIC, size=(1, 2)),
        _fault("kv:fp8", 2, _PLAIN, "kv-cache"),
        _fault("kv_clipped:{x}", 1, _PLAIN, "kv-cache", "kv-scale", size=(1, 2)),
    )),
    "rotations": (11, (
        _fault("rope_base_times:{x}", 5, _ROTATED, *_ROPE, size=(0.01, 0.5), digits=3),
        _fault("scaling_ignored", 3, _SCALED, *_ROPE),
        _fault("rope_factor:{x}", 2, _SCALED_ROPE, *_ROPE, size=(16, 40), digits=0),
        _fault("yarn_factor_lost", 1, ("qwen3_yarn",), *_SCALE),
    )),
    "weight updates": (10, (
        _old("", 2),
        _old(r"lm_head|embed_out", 1, _UNTIED),
        _old("norm", 1),
        _old(r"layers\.1\.", 1),
        _old(r"(k|v)_proj|kv_b_proj|qkv_proj|query_key_value", 1),
        _fault("router_correction_lost", 1, _CORRECTED, "router-bias", "router-weights",
               "partial-sync"),
        _stale("expert_rank_from:STALE", 1, _EXPERTS, "weight-update", *_PARTIAL),
        _stale("updated_after:{x},STALE", 1, _PLAIN, "mixed-weights", *_OLD,
               size=(5, 20), digits=0),
        _fault("layers_exchanged:0,1", 1, _GATED, *_ORDER),
    )),
    "windows, caps and scales of logits": (9, (
        _fault("without_window", 3, _WINDOWED, *_WINDOW),
        _fault("window_plus:{x}", 1, _WINDOWED, *_WINDOW, size=(3, 8), digits=0),
        _fault("pattern_shifted:1", 1, tuple(_PATTERNED), *_WINDOW),
        _fault("head_unscaled", 2, ("gemma2", "cohere2", "granite", "cohere", "vaultgemma"),
               "logit-soft-cap", "logit-scale", "temperature", "model-config", side="learner"),
        _fault("embedding_scale:0.125", 1, ("gemma2", "gemma", "gemma3", "vaultgemma"),
               "embedding-scale", "model-config"),
    )),
    "temperatures and truncations": (9, (
        _fault("before_temperature", 3, _ALL, "raw-logprobs", "temperature", sampling=_ANY),
        _fault("ignores_temperature", 2, _ALL, "temperature", side="learner", sampling=_ANY),
        _fault("hidden_top_p:{x}", 1, _ALL, "truncation", size=(0.05, 0.3), size_of="1-{x}"),
        _fault("hidden_top_k:{x}", 1, _ALL, "truncation", size=(3, 20), digits=0),
        _fault("typical_p:{x}", 1, _ALL, "truncation", "typical-sampling", size=(0.1, 0.4),
               size_of="1-{x}"),
        _fault("dynamic_temperature:{x}", 1, _ALL, "temperature", "dynamic-temperature",
               size=(0.2, 0.5)),
    )),
    "batches of the learner": (8, (
        _fault("packed", 3, _PLAIN, "packing", "packed-sequences", "prompt-ids", "causal-mask",
               "batch-variance", side="learner"),
        _fault("padded_batch", 1, _ALL, "attended-padding", "prompt-ids", side="learner"),
        _fault("microbatches_sorted", 1, _ALL, *_SHUFFLED, "batch-variance", side="learner"),
        _fault("context_parallel_blind:{x}", 1, _PLAIN, *_MASK, side="learner", size=(12, 24),
               digits=0),
        _fault("cut_at:{x}", 2, _ALL, *_MISSING, "masked-tokens", "subset-of-sequences",
               "long-prompts", side="learner", size=(30, 50), digits=0),
    )),
    "prompts": (7, (
        _fault("begun", 2, _ALL, "prompt-ids"),
        _fault("system_prompt:{x}", 1, _ALL, "prompt-ids", size=(1, 8), digits=0),
        _fault("date_line:{x}", 1, _ALL, "prompt-ids", size=(1, 3), digits=0),
        _fault("tools_lost:{x}", 1, _ALL, "prompt-ids", size=(2, 6), digits=0),
        _fault("right_kept:{x}", 1, _ALL, "prompt-ids", "long-prompts", size=(10, 16), digits=0),
        _fault("learner_begun", 1, _ALL, "prompt-ids", side="learner"),
        _fault("retokenised:{x}", 1, _ALL, "prompt-ids", side="learner", size=(0.3, 1)),
    )),
    "ports of models": (7, (
        _fault("attention_scale:{x}", 1, _PLAIN, "attention-scale", size=(0.5, 2)),
        _fault("norm_eps:{x}", 1, _ALL, "norm-epsilon", size=(0.01, 0.3), digits=3),
        _fault("gate_times:{x}", 1, _SILU, "activation", "model-config", size=(1.5, 2.5)),
        _fault("residual_scale:{x}", 1, _PLAIN, "residual-scale", "model-config",
               size=(0.4, 0.8)),
        _fault("norms_lost:q_norm", 1, ("qwen3", "qwen3_moe", "gemma3", "exaone4", "beam"),
               "qk-norm", "missing-norm", "skipped-norm"),
        _fault("activation:gelu", 1, ("llama", "qwen2", "smollm3", "mixtral", "aria"),
               "activation", "model-config"),
    )),
    "columns of values": (6, (
        _fault("shift:1", 2, _ALL, "off-by-one"),
        _fault("zero_filled:{x}", 1, _ALL, *_MISSING, "eos-handling", size=(1, 8), digits=0),
        _fault("samples_rotated", 1, _ALL, *_SHUFFLED),
        _fault("clipped:-{x}", 1, _ALL, "clipping", size=(0.7, 2)),
        _fault("averaged", 1, _ALL, "averaging"),
    )),
    "adapters": (6, (
        _fault("", 2, _KEYED, *_ADAPTER, side="learner", options=ADAPTER),
        _fault("adapter_times:{x}", 2, _KEYED, *_ADAPTER, size=(1.5, 4), **_LORA),
        _fault("adapter_layers_shifted:1", 1, _KEYED, *_ADAPTER, "adapter-layers", **_LORA),
        _fault("adapter_old:{x}", 1, _KEYED, *_ADAPTER, "stale-adapter", "weight-update",
               "stale-weights", size=(0.5, 1.5), **_LORA),
    )),
    "conversions of checkpoints": (6, (
        _fault("exchanged:k_proj,v_proj", 1, _GROUPED_HEADS, *_LAYOUT, "qkv-layout"),
        _fault("norm_offset:1", 1, ("gemma", "gemma2", "gemma3", "nemotron", "vaultgemma"),
               "norm-offset"),
        _fault("kv_of_first_rank", 1, _GROUPED_HEADS, *_HEADS, *_LAYOUT),
        _fault("experts_of_first_rank", 1, _FUSED, *_LAYOUT, "expert-order", "expert-parallel",
               "duplicated-experts", "partial-sync"),
        _fault("without_qkv_bias", 1, _BIASED, "missing-bias"),
    )),
    "prefix caches": (5, (
        _stale("old_prefix:STALE", 3, _PLAIN, *_CACHE),
        _fault("prefix_unadapted", 1, _KEYED, *_CACHE, "adapter", **_LORA),
        _fault("prefix_mixed:{x},4", 1, _ALL, "prefix-caching", "prompt-ids", "stale-cache",
               size=(2, 4), digits=0),
    )),
    "defaults of generation_config.json": (5, (
        _fault("repetition:{x}", 3, _ALL, *_PENALTY, size=(0.05, 0.3), size_of="1+{x}"),
        _fault("hidden_temperature:{x}", 1, _ALL, "temperature", size=(0.6, 0.9)),
        _fault("hidden_top_k:20+hidden_top_p:0.8", 1, _ALL, "truncation"),
        _fault("min_tokens:{x}", 1, _ALL, "min-tokens", size=(12, 30), digits=0),
    )),
    "experts": (4, (
        _fault("not_renormalised", 1, ("qwen3_moe", "qwen2_moe", "glm4_moe", "dots1"),
               "router-weights", "model-config"),
        _fault("router_k:1", 1, _EXPERTS, "router-top-k", "model-config"),
        _fault("routed_factor_lost", 1, ("deepseek_v3", "glm4_moe", "dots1", "axk2"),
               "router-weights", "router-scale", "expert-scale", "model-config"),
        _fault("router_bf16", 1, _EXPERTS, "router-precision"),
    )),
}  # fmt: skip
KINDS = weighted(GROUPS)
_BFLOAT = {"dtype": "bfloat16"}
HEALTHY: Healthy = (
    ("", {**_BFLOAT, "batch_rows": 3}, {**_BFLOAT, "batch_tokens": 200}),
    ("", {"batch_rows": 4}, {"batch_tokens": 150}),
    ("summed_in_parts:2", _BFLOAT, _BFLOAT),
    ("", {**ADAPTER, "adapter_use": "merged"}, ADAPTER),
    ("", {"dtype": "float16"}, {"dtype": "float16", "batch_rows": 6}),
)
HEALTHY_FAMILIES = _ALL
ADAPTED_FAMILIES = _KEYED
"""Families with modules that the adapter of the plants changes."""
