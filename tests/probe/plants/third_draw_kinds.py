"""The kinds of faults that `third_draw` draws from, with their frequencies.

The groups and their weights are those of `second_draw_kinds`: threads of public issue trackers. The
faults within a group are others: what engines, converters, samplers and trainers also get wrong.
How a group's weight is divided among its faults is an estimate.
"""

from __future__ import annotations

from typing import Any

from tests.probe.plants.draw import ADAPTER, Groups, Healthy, weighted
from tests.probe.plants.draw import fault as _fault
from tests.probe.plants.draw import split as _families
from tests.probe.plants.draw import stale as _stale
from tests.probe.plants.second_draw_kinds import (
    _ALL,
    _BIASED,
    _DENSE,
    _EXPERTS,
    _OLD,
    _PARTIAL,
    _PATTERNED,
    _QUERIED,
    _SCALED,
    _TIED,
    _WINDOWED,
    _old,
)

_OTHER = ("qwen2_moe", "gpt_oss", "diffllama", "gemma3n", "falcon_h1", "kimi_linear", "lfm2")
"""Families with attention, or weights, that some faults do not fit."""
_PLAIN = tuple(each for each in _DENSE if each not in _OTHER)
_UNTIED = tuple(each for each in _ALL if each not in _TIED)
_GATED = _families(
    "llama mistral qwen3 gemma3 cohere2 granite olmo2 olmo3 smollm3 stablelm qwen2 exaone4"
    " ernie4_5 helium seed_oss cohere gemma hunyuan minicpm3 cwm olmo ministral youtu hyperclovax"
    " vaultgemma granite_swa ministral3 internlm3 iquestcoder llama_scaled llama_tied qwen2_tied"
    " qwen3_yarn gemma2"
)
_SHARDED = tuple(each for each in _GATED if each not in ("minicpm3", "youtu"))
_NORMED = _families("qwen3 qwen3_moe gemma3 exaone4 qwen3_yarn olmo2 olmo3 glm4_moe dots1")
_PRENORMED = _families(
    "llama mistral qwen3 qwen2 smollm3 granite seed_oss ernie4_5 internlm3 hyperclovax cwm"
    " ministral mixtral qwen3_moe qwen2_moe gpt_oss deepseek_v3 glm4_moe dots1 llama_scaled"
    " llama_tied qwen2_tied qwen3_yarn iquestcoder"
)
_SANDWICHED = _families("gemma2 gemma3 glm4 olmo2 olmo3 exaone4")
_GROUPED = _families("deepseek_v3 glm4_moe dots1 solar_open deepseek_yarn")
_SHARED = _families("deepseek_v3 glm4_moe dots1 deepseek_yarn")
_KEYED = tuple(each for each in _QUERIED if each not in ("gemma3n", "diffllama", "qwen3_next"))

_LAYOUT = ("tensor-order", "weight-layout", "swapped-weights")
_FEW_BITS = ("quantisation",)
_SCALES = (*_FEW_BITS, "quantisation-scale", "weight-scale", "quantisation-groups")
_ROPE = ("rope-base", "rope-scaling", "model-config")
_ROTARY = ("partial-rotary", "rotary-part", "rope-part", "rope-dimensions", "rope-layout")
_WINDOW = ("sliding-window", "model-config")
_ROWS = ("embedding-rows", "embedding-order", "vocabulary-order", *_LAYOUT)
_SHUFFLED = ("shuffled", "swapped-responses", "responses-order")
_MISSING = ("missing-logprobs", "missing-values", "forced-token", "clipping")
_ADAPTER = ("adapter", "adapter-scale", "adapter-part", "missing-adapter", "lora-adapter")
_CACHE = ("prefix-caching", "stale-cache", "mixed-weights")
_PENALTY = ("repetition-penalty", "sampling-penalties")
_BANNED = ("logit-bias", "banned-tokens", "bad-words", "structured-output")
_NGRAM = ("no-repeat-ngram", "ngram-ban", "structured-output", "wrong-sampler")
_UPDATE = ("weight-update", *_PARTIAL)
_BATCH = ("position-ids", "position-embedding", "packing", "batch-variance")
_MASK = ("causal-mask", "attention-mask", "sliding-window", "chunked-attention", "missing-keys",
         "context-parallel", "sequence-parallel", "mask-border")  # fmt: skip
_ANY: dict[str, Any] = {"temperature": None}
_BOTH: dict[str, Any] = {"options": ADAPTER, "others": ADAPTER}


GROUPS: Groups = {
    "precision, caches and weights in few bits": (15, (
        _fault("mxfp8:32", 2, _ALL, *_FEW_BITS),
        _fault("nvfp4:16", 2, _ALL, *_FEW_BITS),
        _fault("int8_products", 3, _ALL, *_FEW_BITS, "precision"),
        _fault("groups_in_order:16", 1, _DENSE, *_SCALES),
        _fault("kv_values:int4", 2, _PLAIN, "kv-cache"),
        _fault("kv_keys:int4", 1, _PLAIN, "kv-cache"),
        _fault("probabilities_fp8", 1, _PLAIN, "precision", "attention-precision", "kv-cache",
               "attention-kernel", "quantisation"),
        _fault("router_fp8", 1, _EXPERTS, "router-precision", "router-weights", "quantisation"),
        _fault("", 2, _ALL, "precision", side="learner", options={"autocast": "bfloat16"}),
    )),
    "rotations": (11, (
        _fault("ntk:{x}", 3, _ALL, *_ROPE, size=(2, 16)),
        _fault("scaled_twice", 3, _SCALED, *_ROPE),
        _fault("last_part_rotated", 2, ("gpt_neox", "minimax_m2", "glm4", "glm"), *_ROTARY),
        _fault("rope_of_type:full_attention,sliding_attention", 2, ("gemma3", "olmo3"), *_ROPE,
               "rope-layers"),
        _fault("rows_permuted", 1, ("llama", "qwen2", "internlm3", "iquestcoder", "mixtral"),
               "rope-layout", "head-order", "qkv-layout", *_LAYOUT),
    )),
    "weight updates": (10, (
        _stale("averaged_with:{x},STALE", 1, _DENSE, "weight-update", *_OLD, "partial-sync",
               size=(0.4, 0.9)),
        _stale("expert_rank_from:STALE", 2, _EXPERTS, *_UPDATE),
        _stale("rank_from:STALE", 2, _SHARDED, *_UPDATE),
        _stale("updated_after:{x},STALE", 2, _PLAIN, "mixed-weights", *_OLD,
               size=(5, 20), digits=0),
        _fault("exchanged:q_norm,k_norm", 1, _NORMED, "qk-norm", "norm-weights", *_LAYOUT),
        _old(r"embed_tokens|embed_in|wte", 1, _UNTIED),
        _old(r"layers\.[01]\.", 1),
        _old(r"down_proj|dense_4h_to_h|fc2", 1),
        _old(r"bias$", 0.5, _BIASED),
    )),
    "windows, caps and scales of logits": (9, (
        _fault("window_plus:-{x}", 3, _WINDOWED, *_WINDOW, size=(4, 10), digits=0),
        _fault("window_everywhere", 2, tuple(_PATTERNED), *_WINDOW),
        _fault("sinks_of_first_rank", 1, ("gpt_oss", "mimo_v2_flash"), "attention-sinks",
               "head-order", "missing-sinks", *_LAYOUT),
        _fault("head_scaled_twice", 1, ("cohere", "cohere2", "granite", "granite_tied",
               "cohere2_moe"), "logit-scale", "temperature", "logit-soft-cap", "model-config"),
        _fault("embedding_multiplier:1", 1, ("granite", "granite_tied"), "embedding-scale",
               "model-config"),
        _fault("plain_scale", 1, ("gemma2", "gemma3", "vaultgemma"), "attention-scale",
               "model-config"),
    )),
    "temperatures and truncations": (9, (
        _fault("temperature_dropped", 3, _ALL, "temperature", sampling=_ANY),
        _fault("temperature_inverted", 2, _ALL, "temperature", side="learner", sampling=_ANY),
        _fault("every_fourth:{x}", 1, _ALL, "temperature", size=(1.3, 1.8)),
        _fault("top_n_sigma:{x}", 1, _ALL, "truncation", size=(1, 2.5)),
        _fault("epsilon_cutoff:{x}", 1, _ALL, "truncation", size=(0.01, 0.06), digits=3),
        _fault("early_top_p:{x}", 1, _ALL, "truncation", size=(0.05, 0.3), size_of="1-{x}",
               sampling=_ANY),
    )),
    "batches of the learner": (8, (
        _fault("positions_continue", 1, ("opt", "gpt2", "xglm", "gpt_bigcode"), *_BATCH,
               side="learner"),
        _fault("context_parallel_blind:{x}", 2, _PLAIN, *_MASK, side="learner", size=(12, 24),
               digits=0),
        _fault("microbatches_sorted", 2, _ALL, *_SHUFFLED, "batch-variance", side="learner"),
        _fault("adapter_dropout:{x}", 1, _KEYED, "nondeterminism", "dropout", *_ADAPTER,
               side="learner", size=(0.1, 0.5), **_BOTH),
        _fault("padding_id_masked:{x}", 2, _PLAIN, "masked-tokens", "attended-padding",
               "eos-handling", side="learner", size=(3, 63), digits=0),
    )),
    "prompts": (7, (
        _fault("thinking_opened:{x}", 3, _ALL, "prompt-ids", size=(1, 4), digits=0),
        _fault("header_lost:{x}", 1, _ALL, "prompt-ids", size=(2, 4), digits=0),
        _fault("prompt_ended", 1, _ALL, "prompt-ids", side="learner"),
        _fault("thinking_stripped", 2, _ALL, "prompt-ids", side="learner"),
        _fault("left_kept:{x}", 1, _ALL, "prompt-ids", "long-prompts", side="learner",
               size=(6, 12), digits=0),
        _fault("rows_joined:{x}", 1, _ALL, "prompt-ids", side="learner", size=(2, 5), digits=0),
    )),
    "ports of models": (7, (
        _fault("limited_units:{x}", 1, _GATED, "activation-limit", "clipped-activations",
               "activation", size=(0.3, 1)),
        _fault("other_residual", 1, ("gpt_neox", "stablelm"), "parallel-residual",
               "residual-source", "norm-placement", "model-config"),
        _fault("norms_lost:k_norm", 1, _NORMED, "qk-norm", "missing-norm", "skipped-norm"),
        _fault("norms_lost:post_attention_layernorm,post_self_attn_layernorm", 1, _SANDWICHED,
               "missing-norm", "skipped-norm", "norm-placement"),
        _fault("residual_scale:{x}", 1, _DENSE, "residual-scale", "model-config",
               size=(0.4, 0.8)),
        _fault("activation:relu", 1, _GATED, "activation", "model-config"),
        _fault("final_norm_twice", 1, _families("llama mistral qwen3 qwen2 smollm3 mixtral"),
               "norm-twice", "double-norm", "final-norm", "norm-placement"),
    )),
    "columns of values": (6, (
        _fault("samples_rotated", 2, _ALL, *_SHUFFLED),
        _fault("rows_by_length", 1, _ALL, *_SHUFFLED),
        _fault("likeliest", 1, _ALL, "likeliest-token", "top-token", "top-logprobs"),
        _fault("tool_span:{x}", 2, _ALL, *_MISSING, "masked-tokens", size=(2, 10), digits=0),
        _fault("first_dropped", 1, _ALL, "off-by-one"),
    )),
    "adapters": (6, (
        _fault("adapter_rank_cut:2", 1, _KEYED, *_ADAPTER, **_BOTH),
        _fault("adapter_times:0.5", 1, _KEYED, *_ADAPTER, **_BOTH),
        _fault("adapter_layer_lost:{x}", 2, _KEYED, *_ADAPTER, "adapter-layers", size=(1, 2),
               digits=0, **_BOTH),
        _fault("adapter_old:{x}", 2, _KEYED, *_ADAPTER, "stale-adapter", "weight-update",
               "stale-weights", size=(0.5, 1.5), **_BOTH),
    )),
    "conversions of checkpoints": (6, (
        _fault("exchanged:gate_proj,up_proj", 2, _SHARDED, *_LAYOUT, "gate-order", "gate-up-order"),
        _fault("exchanged:input_layernorm,post_attention_layernorm", 1, _PRENORMED,
               "norm-weights", *_LAYOUT),
        _fault("rows_moved:{x}", 1, _UNTIED, *_ROWS, size=(8, 48), digits=0),
        _fault("experts_in_turn", 1, _EXPERTS, "expert-order", *_LAYOUT),
        _fault("without_bias:k_proj", 1, ("phi", "qwen2", "glm4", "seed_oss", "qwen2_tied"),
               "missing-bias"),
        _fault("norms_lost:norm", 1, ("llama", "mistral", "qwen2", "smollm3", "mixtral"),
               "missing-norm", "skipped-norm", "norm-weights", "final-norm"),
    )),
    "prefix caches": (5, (
        _fault("prefix_unadapted", 2, _KEYED, *_CACHE, "adapter", **_BOTH),
        _stale("old_prefix_but:{x},STALE", 3, _PLAIN, *_CACHE, size=(2, 5), digits=0),
        _fault("prefix_mixed:{x},4", 1, _ALL, "prefix-caching", "prompt-ids", "stale-cache",
               size=(2, 4), digits=0),
    )),
    "defaults of generation_config.json": (5, (
        _fault("presence:{x}", 2, _ALL, "presence-penalty", "sampling-penalties",
               size=(0.5, 1.5)),
        _fault("frequency:{x}", 1, _ALL, "frequency-penalty", "sampling-penalties",
               size=(0.2, 1)),
        _fault("ngram_ban:{x}", 1, _ALL, *_NGRAM, size=(2, 3), digits=0),
        _fault("banned:{x},9,23", 1, _ALL, *_BANNED, size=(10, 60), digits=0),
        _fault("prompt_repetition:{x}", 1, _ALL, *_PENALTY, size=(0.1, 0.4), size_of="1+{x}"),
    )),
    "experts": (4, (
        _fault("without_shared", 1, _SHARED, "missing-experts", "shared-expert", "lost-part",
               "residual-scale"),
        _fault("groups_ignored", 1, _GROUPED, "router-groups", "model-config"),
        _fault("capacity:{x}", 1, ("mixtral", "qwen3_moe", "olmoe", "deepseek_v3", "glm4_moe"),
               "expert-capacity", "missing-experts", "token-dropping", "batch-variance",
               side="learner", size=(0.8, 1.2)),
        _fault("router_jitter:{x}", 1, _EXPERTS, "nondeterminism", "router-jitter",
               side="learner", size=(0.05, 0.2)),
    )),
}  # fmt: skip
KINDS = weighted(GROUPS)
_BFLOAT, _HALF = {"dtype": "bfloat16"}, {"dtype": "float16"}
HEALTHY: Healthy = (
    ("", {**_BFLOAT, "batch_rows": 5}, {**_BFLOAT, "batch_tokens": 250}),
    ("", {"batch_rows": 2}, {}),
    ("summed_in_parts:4", _BFLOAT, _BFLOAT),
    ("", {**_HALF, "batch_rows": 9}, _HALF),
    ("", {**ADAPTER, "adapter_use": "merged", **_BFLOAT}, {**ADAPTER, **_BFLOAT}),
    ("", {"attention": "eager"}, {"batch_tokens": 180}),
)
HEALTHY_FAMILIES = _ALL
ADAPTED_FAMILIES = _KEYED
"""Families with modules that the adapter of the plants changes."""
