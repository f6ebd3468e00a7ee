"""The kinds of faults that `second_draw` draws from, with their frequencies.

A kind's weight is the number of threads that 22 searches of public issue trackers found (vLLM,
SGLang, TRL, verl, slime, prime-rl, NeMo RL, SkyRL, ms-swift, OpenRLHF, Megatron, transformers and
ports of its models): each thread reports values of a sampler and a learner, or of an engine and its
reference, that differ. Examples are next to the kinds. A kind of which none was found, but which an
engineer would name, has the weight 1. Only facts were used.
"""

from __future__ import annotations

from typing import Any

from tests.probe.plants.draw import ADAPTER, Healthy, Kind
from tests.probe.plants.draw import fault as _fault
from tests.probe.plants.draw import split as _families

_EXPERTS = _families(
    "mixtral qwen3_moe deepseek_v3 gpt_oss qwen2_moe olmoe granitemoe glm4_moe deepseek_v2 dots1"
    " phimoe granitemoeshared qwen3_next minimax_m2 hunyuan_moe lfm2_moe solar_open flex_olmo afmoe"
    " laguna mimo_v2_flash longcat_flash ernie4_5_moe exaone_moe mellum glm4_moe_lite hy_v3"
    " cohere2_moe qwen3_5_moe granitemoe_swa kimi_linear"
)
_DENSE = _families(
    "llama mistral gemma2 qwen3 gpt_neox phi gemma3 cohere2 granite olmo2 olmo3 smollm3 glm4"
    " stablelm nemotron starcoder2 phi3 lfm2 qwen2 exaone4 arcee ernie4_5 helium seed_oss persimmon"
    " cohere gemma apertus hunyuan minicpm3 falcon_h1 cwm olmo glm ministral youtu jais2"
    " hyperclovax vaultgemma granite_swa nanochat ministral3 diffllama gemma3n qwen3_5"
    " apertus_llama3 granite_tied internlm3 iquestcoder llama_scaled llama_tied qwen2_tied"
    " qwen3_yarn"
)
_ALL = (*_DENSE, *_EXPERTS, "deepseek_yarn")
_WINDOWED = _families(
    "mistral gemma2 gemma3 cohere2 gpt_oss olmo3 starcoder2 exaone4 cwm ministral afmoe vaultgemma"
    " laguna mimo_v2_flash granite_swa exaone_moe mellum cohere2_moe granitemoe_swa gemma3n"
)
_PATTERNED = [each for each in _WINDOWED if each not in ("mistral", "gemma2", "starcoder2")]
_SCALED = _families("llama_scaled apertus_llama3 qwen3_yarn ministral3 olmo3 gemma3 phi3 laguna")
_CORRECTED = _families(
    "deepseek_v3 glm4_moe dots1 minimax_m2 solar_open mimo_v2_flash longcat_flash ernie4_5_moe"
    " exaone_moe glm4_moe_lite hy_v3 kimi_linear laguna deepseek_yarn"
)
_TIED = _families("qwen3 granite lfm2 lfm2_moe granite_tied llama_tied qwen2_tied")
_BIASED = _families("phi qwen2_moe glm4 stablelm starcoder2 qwen2 seed_oss phimoe glm qwen2_tied")
_OFFSET = _families("gemma gemma2 gemma3 nemotron qwen3_next qwen3_5 qwen3_5_moe vaultgemma")
_CAPPED = _families(
    "gemma2 cohere2 granite cohere vaultgemma nanochat cohere2_moe gemma3n granite_tied"
)
_RENORMED = _families("qwen3_moe qwen2_moe glm4_moe dots1 qwen3_next exaone_moe mellum cohere2_moe")
_LATENT = _families("deepseek_v3 deepseek_v2 minicpm3 youtu glm4_moe_lite deepseek_yarn")
_QUERIED = [
    each
    for each in _ALL
    if each not in ("gpt_neox", "phi3", "persimmon", "falcon_h1", *_LATENT, "longcat_flash")
]
_LEARNED = ("opt", "gpt2", "gpt_bigcode", "xglm")
_DROPPING = ("starcoder2", "seed_oss", "gpt2", "opt", "gpt_bigcode", "xglm")


_OLD = ("stale-weights", "weight-update")
_PARTIAL = ("partial-sync", *_OLD)
_PREFIX = ("prefix-caching", "stale-cache", "mixed-weights")
_ADAPTER = ("adapter", "adapter-scale", "adapter-part", "missing-adapter", "lora-adapter")
_LOGITS = ("logit-soft-cap", "logit-scale", "temperature", "model-config")
_ANY: dict[str, Any] = {"temperature": None}


def _old(pattern: str, weight: float, families: tuple[str, ...] = _ALL) -> Kind:
    options = {"weights": "STALE"} | ({"weights_only": pattern} if pattern else {})
    return Kind("", weight, families, _PARTIAL if pattern else _OLD, options=options, is_old=True)


KINDS: tuple[Kind, ...] = (
    # Rotations: DeepSpeed 8345, vLLM 42624, Megatron 6305, ms-swift 6056, llama.cpp 24820.
    _fault("rope_base_times:{x}", 5, _ALL, "rope-base", size=(0.01, 0.5), digits=3),
    _fault("scaling_ignored", 5, _SCALED, "rope-scaling", "rope-base", "model-config"),
    _fault("rope_interleaved", 1, ("llama", "qwen3", "mixtral", "qwen2"), "rope-layout"),
    # Windows and caps: vLLM 5908, 7442, 21863, 21927, 33594, transformers 40126, verl 3723.
    _fault("without_window", 4, _WINDOWED, "sliding-window", "model-config"),
    _fault("pattern_shifted:1", 2, _PATTERNED, "sliding-window", "model-config"),
    _fault("without_softcap:attention", 1, ("gemma2", "vaultgemma"), "attention-soft-cap"),
    _fault("head_unscaled", 2, _CAPPED, *_LOGITS, side="learner"),
    # Temperatures and truncations: TRL 4159, 3029, 6789, 6945, vime 64, ms-swift 8442.
    _fault("before_temperature", 3, _ALL, "raw-logprobs", "temperature", sampling=_ANY),
    _fault("ignores_temperature", 2, _ALL, "temperature", side="learner", sampling=_ANY),
    _fault(
        "scaled_after", 1, _ALL, "raw-logprobs", "temperature", "scaled-logprobs", sampling=_ANY
    ),
    _fault("hidden_top_p:{x}", 1, _ALL, "truncation", size=(0.03, 0.3), size_of="1-{x}"),
    _fault("hidden_top_k:{x}", 1, _ALL, "truncation", size=(3, 30), digits=0),
    _fault("hidden_min_p:{x}", 1, _ALL, "truncation", size=(0.02, 0.2)),
    # Defaults of generation_config.json: prime-rl 886, verl 7270, ART 140, NeMo RL 3497.
    _fault(
        "repetition:{x}", 3, _ALL, "repetition-penalty", size=(0.05, 0.3), size_of="1+{x}"
    ),
    _fault("hidden_top_k:20+hidden_top_p:0.8", 1, _ALL, "truncation"),
    _fault("hidden_temperature:{x}", 1, _ALL, "temperature", size=(0.6, 0.9)),
    # Columns: ms-swift 8196, prime-rl 1525, TRL 6191, maxtext 2103, vime 70.
    _fault("shift:1", 2, _ALL, "off-by-one"),
    _fault("shift:-1", 1, _ALL, "off-by-one"),
    _fault("shift:1", 1, _ALL, "off-by-one", side="learner"),
    _fault("shift_half:1", 1, _ALL, "off-by-one", side="learner"),
    _fault(
        "zero_filled:{x}", 1, _ALL, "missing-values", "eos-handling", "clipping",
        size=(1, 8), digits=0,
    ),
    # Weight updates: vLLM 56689, prime-rl 2823, SkyRL 1471, 1505, 1680, Megatron 5844, slime 1695.
    _fault("head_from:STALE", 2, _TIED, "tied-head", *_PARTIAL, is_old=True),
    _old(r"layers\.1\.", 1),
    _old(r"layers\.2\.|lm_head|embed_out", 1),
    _old(r"\.experts\.|(input|output)_linear", 1, _EXPERTS),
    _old(r"(q|k|v)_proj|qkv_proj|query_key_value", 0.5),
    _old("norm", 0.5),
    _old("", 1),
    _fault(
        "router_correction_lost", 3, _CORRECTED, "router-bias", "router-weights", "partial-sync"
    ),
    # Prefix caches: prime-rl 1651, 2270, NeMo RL 4018, vLLM 9744, lmdeploy 4917.
    _fault("old_prefix:STALE", 5, _DENSE, *_PREFIX, is_old=True),
    # Adapters: verl 7495, 3149, SkyRL 2250, NeMo RL 3696, TRL 5188, SGLang 2671.
    _fault("", 2, _QUERIED, *_ADAPTER, side="learner", options=ADAPTER),
    _fault(
        "adapter_times:{x}", 3, _QUERIED, *_ADAPTER, size=(1.5, 8), options=ADAPTER,
        others=ADAPTER,
    ),
    _fault("adapter_part_lost:q_proj", 1, _QUERIED, *_ADAPTER, options=ADAPTER, others=ADAPTER),
    # Conversions: mlx-lm 1442, 1623, mlx-vlm 2114, Automodel 1410, 2591, LoongForge 109.
    _fault("norm_offset:1", 2, _OFFSET, "norm-offset"),
    _fault("norm_offset:-1", 1, _OFFSET, "norm-offset"),
    _fault("without_qkv_bias", 1, _BIASED, "missing-bias"),
    _fault("bias_cut", 1, _BIASED, "missing-bias", "bias-part", "lost-rows", "partial-sync"),
    _fault("expert_bias_whole", 1, ("gpt_oss",), "expert-bias", "router-weights"),
    # Precision: NeMo RL 3008, 3225, prime-rl 3555, 2438, 2952, verl 4435, TRL 4303.
    _fault("kv:fp8", 3, _ALL, "kv-cache"),
    _fault("kv:fp8_e5m2", 1, _ALL, "kv-cache"),
    _fault("kv:int8", 1, _ALL, "kv-cache"),
    _fault("quantised:int8", 1, _ALL, "quantisation"),
    _fault("four_bits", 1, _DENSE, "quantisation"),
    _fault("fp8_products:32", 1, _ALL, "quantisation", "precision"),
    _fault("dtype:bfloat16", 4, _ALL, "precision"),
    _fault("dtype:float16", 1, _ALL, "precision"),
    _fault("router_bf16", 2, _EXPERTS, "router-precision"),
    # Experts: Pai-Megatron-Patch 241, Megatron 6931, and what an engineer would name.
    _fault("not_renormalised", 1, _RENORMED, "router-weights"),
    _fault("router_k:1", 1, _EXPERTS, "router-top-k"),
    _fault("without_shared_gate", 1, ("qwen2_moe", "qwen3_next", "qwen3_5_moe"),
           "shared-expert-gate", "missing-gate", "open-gate"),
    _fault("routed_factor_lost", 1, ("deepseek_v3", "glm4_moe", "dots1", "glm4_moe_lite"),
           "router-weights", "router-scale", "expert-scale", "model-config"),
    # Prompts: prime-rl 1334, verl 3960, 6719, ART 726, NeMo Gym 1416, verifiers 37.
    _fault("system_prompt:{x}", 2, _ALL, "prompt-ids", size=(1, 8), digits=0),
    _fault("last_lost", 1, _ALL, "prompt-ids"),
    _fault("retokenised:{x}", 2, _ALL, "prompt-ids", side="learner", size=(0.3, 1)),
    _fault("span_lost:{x}", 1, _ALL, "prompt-ids", side="learner", size=(1, 6), digits=0),
    _fault("begun", 1, _ALL, "prompt-ids"),
    # Batches of the learner: TRL 6800, unsloth 6738, TRL 3526, Megatron-Bridge 1776, verl 3487.
    _fault("positions_from_padding", 2, _LEARNED, "position-ids", "position-embedding",
           side="learner"),
    _fault("padded_batch", 1, _ALL, "attended-padding", "prompt-ids", side="learner"),
    _fault("packed", 4, _DENSE, "packing", "packed-sequences", "prompt-ids", "causal-mask",
           "batch-variance", side="learner"),
    _fault("training_mode", 1, _DROPPING, "nondeterminism", "dropout", side="learner"),
    # Ports of models, which an engineer would name.
    _fault("attention_scale:{x}", 1, _DENSE, "attention-scale", size=(0.5, 2)),
    _fault("norm_eps:{x}", 1, _ALL, "norm-epsilon", size=(0.01, 0.3), digits=3),
    _fault("qk_norm", 1, ("qwen3", "qwen3_moe", "olmo2", "exaone4", "glm4_moe"), "qk-norm"),
    _fault("embedding_scale:{x}", 1, _DENSE, "embedding-scale", "model-config", size=(0.25, 4)),
    _fault("activation:gelu", 1, ("llama", "qwen3", "qwen2", "mistral"), "activation"),
    _fault("latent_norm_lost", 1, _LATENT, "latent-norm", "missing-norm", "skipped-norm"),
    _fault("yarn_scale_lost", 1, ("deepseek_yarn",), "attention-scale"),
)  # fmt: skip
_BFLOAT, _HALF = {"dtype": "bfloat16"}, {"dtype": "float16"}
HEALTHY: Healthy = (
    ("", _BFLOAT, {**_BFLOAT, "batch_tokens": 300}),
    ("", {"attention": "eager"}, {}),
    ("", {**_BFLOAT, "batch_rows": 7}, _BFLOAT),
    ("", {"batch_rows": 3}, {"batch_tokens": 200}),
    ("summed_in_parts:2", _BFLOAT, _BFLOAT),
    ("", _HALF, {**_HALF, "batch_tokens": 400}),
    ("", {"adapter": "ADAPTER", "adapter_use": "merged"}, ADAPTER),
)
HEALTHY_FAMILIES = _ALL
