"""Plants of further families: frozen before any look at attribution's code.

The faults, the families and the names that count as correct were written down before the first run
and without knowledge of the experiments that attribution makes. A name counts that a practitioner
would act on correctly. Where several faults have the same effect (logits that are not divided, and
a temperature), each name counts. Two ids of attribution with the meaning of a written name,
`prefix-caching` and `eos-handling`, were added before the result of the first run was known;
`raw-logprobs` in the first token, which is what is planted there, after it.
Healthy pairs include bfloat16 on both sides and other kernels.
"""

from __future__ import annotations

from typing import Any

Names = tuple[str, ...]
ADAPTER, LOUD_ADAPTER, STALE = "ADAPTER", "LOUD_ADAPTER", "STALE"
"""Words in options and faults that stand for folders."""
_ROPE = ("rope-base", "rope-scaling", "rope-layout", "model-config")

COMPUTED: tuple[tuple[str, str, Names], ...] = (
    ("gemma3", "rope_of_type:sliding_attention,full_attention", _ROPE),
    ("olmo3", "rope_of_type:sliding_attention,full_attention", _ROPE),
    ("smollm3", "rope_everywhere", ("rope-layers", *_ROPE)),
    ("stablelm", "whole_head_rotated", _ROPE),
    ("phi3", "rope_long", _ROPE),
    ("glm4", "rope_halves", ("rope-layout",)),
    ("cohere2", "pattern_shifted:1", ("sliding-window", "model-config")),
    ("gpt_oss", "without_sinks", ("attention-sinks", "missing-sinks")),
    ("gpt_oss", "router_before", ("router-weights",)),
    ("gpt_oss", "swiglu_alpha:1", ("activation", "model-config")),
    ("granite", "residual_multiplier:1", ("residual-scale", "model-config")),
    ("olmo2", "norm_sharded:2", ("qk-norm",)),
    ("qwen2_moe", "without_shared_gate", ("shared-expert-gate", "missing-gate")),
    ("nemotron", "norm_offset:-1", ("norm-offset",)),
    ("starcoder2", "activation:gelu", ("activation",)),
    ("bloom", "without_alibi", ("attention-bias", "missing-bias", "position-bias")),
    ("gpt2", "padding_counted", ("position-ids", "attended-padding")),
    ("lfm2", "conv_lost", ("conv-state", "state-cache", "first-tokens")),
    ("gemma3", "kv:int8", ("kv-cache",)),
    ("qwen2_moe", "quantised:fp8", ("quantisation",)),
    ("smollm3", "chunked:8,14", ("chunked-prefill", "long-prompts")),
)
"""Families, faults of the sampler's forward pass, and accepted names."""
WEIGHTS: dict[str, tuple[str, Names, dict[str, str]]] = {
    "head_from:STALE": ("granite", ("partial-sync",), {}),
    "": ("nemotron", ("partial-sync",), {"weights": STALE, "weights_only": r"layers\.[12]\."}),
    "prefix_from:STALE": ("olmo3", ("stale-cache", "prefix-caching"), {}),
    "updated_after:12,STALE": ("glm4", ("stale-weights", "mixed-weights"), {}),
}
"""Family, accepted names and options by fault of a weight update; the older checkpoint is given."""
SERVED: dict[str, tuple[str, Names, dict[str, Any]]] = {
    "raw+hidden_top_k:8": ("cohere2", ("truncation", "wrong-sampler"), {}),
    "hidden_top_k:20+hidden_top_p:0.95": ("olmo2", ("truncation",), {}),
    "end_zero": ("starcoder2", ("end-token", "eos-handling"), {}),
    "every_fourth:1.4": ("nemotron", ("temperature",), {}),
    "sixth_swapped": ("lfm2", ("shuffled", "swapped-responses"), {}),
    "first_raw": ("stablelm", ("first-token", "temperature", "raw-logprobs"), {"temperature": 0.7}),
}
"""Family, accepted names and requested sampling by fault of sampling and serving."""
LEARNER: dict[str, tuple[str, Names, dict[str, Any]]] = {
    "logits_unscaled": ("granite", ("logit-scale", "temperature", "model-config"), {}),
    "packed": ("olmo2", ("packing", "contamination", "batch-variance"), {}),
    "padded_batch": ("glm4", ("attended-padding", "prompt-ids"), {}),
    "temperature_twice": ("phi3", ("temperature",), {"temperature": 0.7}),
    "train_mode": ("starcoder2", ("nondeterminism", "dropout"), {}),
}
"""The same for the learner's faults."""
ADAPTERS: tuple[tuple[str, Names], ...] = (
    ("olmo2", ("adapter", "lora-adapter", "lora-scale", "adapter-scale")),
)
"""Families and accepted names of an adapter whose scale is not divided by its rank."""
DOUBLES: tuple[tuple[str, str, tuple[Names, ...]], ...] = (
    ("gemma3", "rope_of_type:sliding_attention,full_attention+kv:int8", (_ROPE, ("kv-cache",))),
    ("granite", "residual_multiplier:1+hidden_top_p:0.9",
     (("residual-scale", "model-config"), ("truncation",))),
    ("gpt_oss", "without_sinks+hidden_temperature:0.9",
     (("attention-sinks", "missing-sinks"), ("temperature",))),
    ("olmo2", "norm_sharded:2+begun", (("qk-norm",), ("prompt-ids",))),
    ("starcoder2", "without_window+quantised:fp8", (("sliding-window",), ("quantisation",))),
    ("stablelm", "whole_head_rotated+sixth_swapped", (_ROPE, ("shuffled", "swapped-responses"))),
    ("cohere2", "pattern_shifted:1+hidden_top_k:20",
     (("sliding-window", "model-config"), ("truncation",))),
    ("qwen2_moe", "not_renormalised", (("router-weights",), ("partial-sync",))),
)  # fmt: skip
"""Families, faults and accepted names; the last has a stale layer, too."""
STALE_LAYER = {"weights": STALE, "weights_only": r"layers\.1\."}
HEALTHY: tuple[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("gemma3", {}, {}, {}),
    ("gpt_oss", {}, {}, {}),
    ("lfm2", {}, {}, {}),
    ("bloom", {}, {}, {"temperature": 1.3}),
    ("olmo3", {"attention": "eager", "dtype": "bfloat16"}, {"dtype": "bfloat16"}, {}),
    ("cohere2", {"attention": "eager"}, {"batch_tokens": 200}, {"temperature": 0.7}),
    ("phi3", {"dtype": "bfloat16"}, {"dtype": "bfloat16"}, {}),
    ("qwen2_moe", {"dtype": "bfloat16"}, {"dtype": "bfloat16"}, {}),
)
"""Families, options of either engine and requested sampling of healthy pairs."""
