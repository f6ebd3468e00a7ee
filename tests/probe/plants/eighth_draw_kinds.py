"""The kinds of faults that `eighth_draw` draws from, with their frequencies.

A kind's weight is the number of threads of public issue trackers that report it, which are named
next to it: 31 searches for what made the values of a sampler and a learner, or of an engine and its
reference, differ. A thread counts if its cause was found. Only facts were used. No kind was left
out for being in an earlier set, but two that do not move a tiny model: an output head in bfloat16
(prime-rl 2438, TRL 4303, open-instruct 1387, vLLM 48390, Fast-LLM 526, OpenRLHF 634), and experts
that rounding alone routes otherwise (Megatron-LM 4168, prime-rl 2808, Automodel 2797).
"""

from __future__ import annotations

from typing import Any

from tests.probe.plants.draw import ADAPTER, Healthy, Kind
from tests.probe.plants.draw import fault as _fault
from tests.probe.plants.draw import split as _families
from tests.probe.plants.draw import stale as _stale
from tests.probe.plants.fourth_draw_kinds import _ALL as _KNOWN
from tests.probe.plants.fourth_draw_kinds import (
    _DENSE,
    _EXPERTS,
    _KEYED,
    _PLAIN,
    _ROTATED,
)
from tests.probe.plants.second_draw_kinds import _LEARNED, _SCALED, _TIED, _WINDOWED, _old

NEW_KINDS = ("norm_eps_of", "turn_twice")
"""Faults that no earlier set has."""
_RARE = _families(
    "falcon gptj codegen bloom gpt_neo mpt doge axk1 bailing_hybrid granitemoehybrid hy_v4 jamba"
    " jetmoe kolibri1 llama4 minimax_m3 nemotron_h olmo_hybrid zamba2 zaya glm_moe_dsa"
)
"""Families that no natural draw has, for faults that any model can have."""
_ANY_FAMILY = (*_KNOWN, *_RARE)
_SANDWICHED = _families("gemma2 gemma3 olmo2 olmo3 exaone4 vaultgemma beam cwm glm4")
_HYBRID = _families("qwen3_5 qwen3_next olmo_hybrid bailing_hybrid falcon_h1 granitemoehybrid")
_LORA: dict[str, Any] = {"options": ADAPTER, "others": ADAPTER}
_T: dict[str, Any] = {"temperature": None}
_OLD = ("stale-weights", "weight-update", "mixed-weights", "partial-sync")
_CACHE = ("prefix-caching", "stale-cache", "mixed-weights")
_ADAPTER = ("adapter", "adapter-scale", "adapter-part", "missing-adapter", "lora-adapter")
_PENALTY = ("repetition-penalty", "sampling-penalties", "requested-penalties")
_RAW = ("raw-logprobs", "temperature", "scaled-logprobs")
_ROPE = ("rope-base", "rope-scaling", "model-config")
_SCALE = ("attention-scale", "model-config")
_LOGITS = ("logit-soft-cap", "logit-scale", "temperature", "model-config")
_BITS = ("quantisation", "precision", "weight-precision")
_MISSING = ("missing-logprobs", "missing-values", "forced-token", "clipping", "eos-handling")
_PACKED = ("packing", "packed-sequences", "prompt-ids", "causal-mask", "batch-variance")
_POSITION = ("position-ids", "position-embedding", "packing", "batch-variance")
_LAYOUT = ("weight-layout", "tensor-order", "swapped-weights", "head-order", "qkv-layout",
           "parallel-layout")  # fmt: skip
_STATE = ("state-cache", "conv-state", "generation-path", "chunked-prefill", "kv-cache")

KINDS: tuple[Kind, ...] = (
    # Weight updates.
    # TRL 5312, TRL 2856, verl 4248, Long-RL 29, slime 1695: nothing arrives.
    _old("", 5, _ANY_FAMILY),
    # prime-rl 2438, vLLM 51665, torchtitan 2402, transformers 43429: the head of a tied model.
    _stale("head_from:STALE", 4, _TIED, "tied-head", *_OLD),
    # SkyRL 1680, slime 2209, verl 7987, SGLang 26032: experts.
    _old(r"\.experts\.|(input|output)_linear", 4, _EXPERTS),
    # lmdeploy 4917, prime-rl 1651, 2270, NeMo RL 4018, vLLM 9744, pytorch/rl 4016, torchtitan 4761.
    _stale("old_prefix:STALE", 7, _PLAIN, *_CACHE),
    # labs-molt 124, rllm 622: requests in flight go on with their cache.
    _stale("updated_after:{x},STALE", 2, _PLAIN, *_OLD, size=(4, 20), digits=0),
    # slime 2092, miles 2589: requests are aborted and resumed.
    _stale("resumed_after:{x},STALE", 2, _PLAIN, *_OLD, size=(4, 20), digits=0),
    # Temperature and truncation.
    # TRL 4159, open-instruct 1678, vime 64, verl 6240, ms-swift 8196.
    _fault("before_temperature", 5, _ANY_FAMILY, *_RAW, sampling=_T),
    # prime-rl 697: values of temperature 1 are divided by it.
    _fault("scaled_after", 1, _ANY_FAMILY, *_RAW, sampling=_T),
    # NeMo RL 935: the learner applies none.
    _fault("ignores_temperature", 1, _ANY_FAMILY, "temperature", side="learner", sampling=_T),
    # TRL 6789, vLLM 42259, NeMo RL 766: the learner normalizes over all tokens.
    _fault("", 3, _ANY_FAMILY, "truncation", sampling={"top_p": None}),
    # Defaults of generation_config.json.
    # verl 7270, prime-rl 886, NeMo RL 3497, lm-evaluation-harness 3154.
    _fault("repetition:{x}", 4, _ANY_FAMILY, *_PENALTY, size=(0.05, 0.3), size_of="1+{x}"),
    # ART 140, Qwen-VL-Series-Finetune 160.
    _fault("hidden_top_k:{x}", 2, _ANY_FAMILY, "truncation", "top-k", size=(4, 20), digits=0),
    # Prompts.
    # Soup 781, SGLang 888, eval-framework 7: the sampler begins twice.
    _fault("begun", 3, _ANY_FAMILY, "prompt-ids"),
    # Soup 785: the learner does.
    _fault("learner_begun", 1, _ANY_FAMILY, "prompt-ids", side="learner"),
    # RLHF-Reward-Modeling 16: no token begins the prompt.
    _fault("first_lost", 1, _ANY_FAMILY, "prompt-ids", "masked-tokens"),
    # verl 6854, prime-rl 1334, verifiers 37, TRL 6250.
    _fault("thinking_stripped", 4, _ANY_FAMILY, "prompt-ids", side="learner"),
    # rllm 898, verl 6719.
    _fault("retokenised:{x}", 2, _ANY_FAMILY, "prompt-ids", side="learner", size=(0.4, 1)),
    # NeMo RL 2821.
    _fault("turn_twice:{x}", 1, _ANY_FAMILY, "prompt-ids", side="learner", size=(2, 5), digits=0),
    # Batches of the learner.
    # TRL 6800, trlx 509.
    _fault("positions_from_padding", 2, _LEARNED, *_POSITION, side="learner"),
    # nanoVLM 204: a packed sample attends to the one before.
    _fault("packed", 1, _DENSE, *_PACKED, side="learner"),
    # nanoVLM 201, LlamaFactory 7318, NeMo Speech 12551.
    _fault("positions_continue", 3, _LEARNED, *_POSITION, side="learner"),
    # reef 536, TRL 2042, TRL 3234.
    _fault("dropout:{x}", 3, _ANY_FAMILY, "nondeterminism", "dropout", side="learner",
           size=(0.02, 0.15), digits=3),
    # Columns of values.
    # ms-swift 8196, trlx 509.
    _fault("shift:-1", 2, _ANY_FAMILY, "off-by-one"),
    # prime-rl 1525.
    _fault("shift:1", 1, _ANY_FAMILY, "off-by-one", side="learner"),
    # vime 70, prime-rl 605, rllm 898.
    _fault("zero_filled:{x}", 3, _ANY_FAMILY, *_MISSING, size=(1, 10), digits=0),
    # llama.cpp 27972: accepted drafts have the value 0.
    _fault("drafts_certain:3", 1, _ANY_FAMILY, *_MISSING, "speculative-decoding"),
    # TRL 6191.
    _fault("columns_of_shortest", 1, _ANY_FAMILY, "off-by-one", "shuffled", "prompt-offset",
           side="learner"),
    # Adapters.
    # mlx-vlm 986, FastVideo 870, LLMs-from-scratch 1079.
    _fault("adapter_times:{x}", 3, _KEYED, *_ADAPTER, size=(1.5, 8), **_LORA),
    # Megatron-LM (ISEEKYAN) 75, verl 1821: the sampler has none.
    _fault("", 2, _KEYED, *_ADAPTER, side="learner", options=ADAPTER),
    # vLLM 51594, Megatron-Bridge 1603.
    _fault("adapter_part_lost:v_proj", 2, _KEYED, *_ADAPTER, **_LORA),
    # Precision.
    # NeMo RL 1212, verl 4435, SGLang 25790.
    _fault("kv:fp8", 3, _PLAIN, "kv-cache"),
    # SGLang 20705, modelexpress 783, NeMo RL 3008: scales of the cache.
    _fault("kv_unscaled:{x}", 3, _PLAIN, "kv-cache", "kv-scale", "attention-scale",
           "value-scale", size=(1.2, 2.5)),
    # verl 7519, 1803, 3519.
    _fault("fp8_products:32", 3, _ANY_FAMILY, *_BITS),
    # TRL 3867, TRL 6789: all weights and products of one side.
    _fault("dtype:bfloat16", 2, _ANY_FAMILY, "precision"),
    # AstrAI 57, vLLM 58076, 14027.
    _fault("router_bf16", 3, _EXPERTS, "router-precision", "precision", "router-flips"),
    # NeMo RL 1801, Automodel 3233.
    _fault("rope_bf16", 2, _DENSE, "rope-precision", "precision"),
    # Settings of the model.
    # MarinFold 184, vLLM 56066, 42624, DeepSpeed 8345, SGLang 14745, ANEForge 207.
    _fault("rope_base_times:{x}", 6, _ROTATED, *_ROPE, size=(0.01, 0.5), digits=3),
    # mlx-vlm 1709, vLLM 831.
    _fault("scaling_ignored", 2, _SCALED, *_ROPE),
    # vLLM 48621.
    _fault("yarn_factor_lost", 1, ("qwen3_yarn",), "attention-scale", "rope-scaling",
           "model-config"),
    # SGLang 33915, sonar 688, sgl-kernel-xpu 491, flash-attention (ROCm) 150.
    _fault("without_softcap:attention", 4, ("gemma2_capped",), "attention-soft-cap",
           "model-config"),
    # SGLang 34093, flashinfer 390.
    _fault("without_window", 2, _WINDOWED, "sliding-window", "model-config"),
    # llama.cpp 13951, mlx-swift-examples 99.
    _fault("plain_scale", 2, ("gemma2", "gemma3", "granite", "vaultgemma"), *_SCALE),
    # unsloth 1218, llama.cpp 8197.
    _fault("head_unscaled", 2, _families("gemma2 cohere2 granite cohere cohere2_moe gemma3n"),
           *_LOGITS, side="learner"),
    # CTranslate2 1882.
    _fault("residual_one", 1, ("granite", "granite_tied"), "residual-scale", "model-config"),
    # Megatron-Bridge 5712.
    _fault("norm_eps_of:post_attention_layernorm,{x}", 1, _SANDWICHED, "norm-epsilon",
           size=(0.01, 0.5), digits=3),
    # candle 271.
    _fault("norm_eps:{x}", 1, _ANY_FAMILY, "norm-epsilon", size=(0.01, 0.3), digits=3),
    # Megatron-Bridge 1690.
    _fault("linear_split", 1, ("qwen3_next",), *_LAYOUT),
    # AReaL 1372, vime 274.
    _fault("qkv_by_group", 2, ("phi3",), *_LAYOUT),
    # vLLM 42259, vLLM 54993.
    _fault("state_bf16", 2, _HYBRID, *_STATE),
    # vLLM 38711.
    _fault("state_chunk:{x}", 1, _HYBRID, *_STATE, size=(3, 9), digits=0),
)  # fmt: skip
_BFLOAT, _HALF = {"dtype": "bfloat16"}, {"dtype": "float16"}
HEALTHY: Healthy = (
    ("", {**_BFLOAT, "batch_rows": 3}, {**_BFLOAT, "batch_tokens": 220}),
    ("summed_in_parts:2", _BFLOAT, _BFLOAT),
    ("", {"batch_rows": 1}, {"batch_tokens": 300, "attention": "eager"}),
    ("", {**ADAPTER, "adapter_use": "merged"}, ADAPTER),
    ("", {**_HALF, "batch_rows": 6}, _HALF),
)
ADAPTED_FAMILIES = _KEYED
HEALTHY_FAMILIES = _DENSE
