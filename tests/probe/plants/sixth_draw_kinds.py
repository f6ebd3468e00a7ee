"""The kinds of faults that `sixth_draw` draws from, with their frequencies.

A kind's weight is the number of threads of public issue trackers that report it, which are named
next to it: they were found by 30 searches for what caused different values of a sampler and a
learner. Only facts were used. Kinds of earlier sets have other sizes here, or were never drawn.
Kinds that do not move a tiny model were left out: an output head in bfloat16 (prime-rl 2438, TRL
4303, NeMo RL 4096), a draft's acceptance without the temperature (lattice 388), which moves no
value, and old weights of the whole model (TRL 5312), which every earlier draw has.
"""

from __future__ import annotations

from typing import Any

from tests.probe.plants.draw import ADAPTER, Healthy, Kind
from tests.probe.plants.draw import fault as _fault
from tests.probe.plants.draw import split as _families
from tests.probe.plants.draw import stale as _stale
from tests.probe.plants.fourth_draw_kinds import (
    _ALL,
    _DENSE,
    _EXPERTS,
    _KEYED,
    _PLAIN,
    _ROTATED,
)
from tests.probe.plants.second_draw_kinds import _LEARNED, _PATTERNED, _old

_GATED = _families(
    "llama mistral qwen3 gemma3 cohere2 granite olmo2 olmo3 smollm3 stablelm qwen2 exaone4"
    " ernie4_5 helium seed_oss cohere gemma hunyuan cwm olmo ministral hyperclovax vaultgemma"
    " granite_swa ministral3 internlm3 iquestcoder llama_scaled qwen2_tied qwen3_yarn gemma2 beam"
)
_GATE_UP = _families(
    "phi3 glm4 glm mixtral qwen3_moe olmoe qwen2_moe glm4_moe dots1 deepseek_v2 deepseek_v3"
)
_SLOTTED = _families("mixtral qwen3_moe olmoe qwen2_moe phimoe glm4_moe dots1 minimax_m2")
_HYBRID = _families("qwen3_5 qwen3_next olmo_hybrid bailing_hybrid")
_LORA: dict[str, Any] = {"options": ADAPTER, "others": ADAPTER}
_ANY: dict[str, Any] = {"temperature": None}
_OLD = ("stale-weights", "weight-update", "mixed-weights", "partial-sync")
_ADAPTER = ("adapter", "adapter-scale", "adapter-part", "lora-adapter")
_CACHE = ("prefix-caching", "stale-cache", "mixed-weights")
_LAYOUT = ("weight-layout", "tensor-order", "swapped-weights")
_PENALTIES = ("presence-penalty", "frequency-penalty", "repetition-penalty", "sampling-penalties",
              "requested-penalties")  # fmt: skip
_SHUFFLED = ("shuffled", "swapped-responses", "responses-order")
_REPEATED = (*_SHUFFLED, "off-by-one", "repeated-values", "lost-tokens")
_FEW_BITS = ("quantisation", "precision", "activation-quantisation")
_SCALE = ("tensor-scale", "weight-scale", "quantisation-scale", "block-scale", "quantisation",
          "residual-scale")  # fmt: skip
_ROPE = ("rope-base", "rope-scaling", "model-config")

KINDS: tuple[Kind, ...] = (
    # NeMo RL 112, 4018, prime-rl 1650, lmdeploy 4917, vLLM 9744, ms-swift 3640, pytorch/rl 4016.
    _stale("old_prefix_some:STALE", 7, _PLAIN, *_CACHE),
    # vLLM 42577, 36997, 1Cat-vLLM 21, vLLM 17429, 17915: a part of the experts is not refreshed.
    _old(r"experts.*down_proj", 5, _EXPERTS),
    # SkyRL 1345: stale caches of a pipeline's collectives.
    _old(r"layers\.2\.|lm_head", 1, _GATED),
    # prime-rl 2823, verl 7834, 7835, Automodel 2511, lingua 75.
    _stale("embedding_old:STALE", 5, _families("llama_tied qwen2_tied granite_tied qwen3"),
           "tied-head", "tied-embeddings", *_OLD),
    # SGLang 11673, verl 5071, miles 2589, SkyRL 1657.
    _stale("resumed_after:{x},STALE", 4, _PLAIN, *_OLD, size=(5, 20), digits=0),
    # verl-recipe 123: replicas pull new weights on their own.
    _stale("replica_old:STALE", 1, _PLAIN, *_OLD),
    # SGLang 27131, 20705, NeMo RL 3226, modelexpress 783, vLLM 25968, imp 89.
    _fault("values_rescaled:{x}", 6, _PLAIN, "kv-cache", "kv-scale", "value-scale",
           size=(1.2, 1.7)),
    # vLLM 38975, SGLang 25790.
    _fault("attention_fp8", 2, _PLAIN, "kv-cache", "quantisation", "precision",
           "attention-precision"),
    # vLLM 54974, 55073, 56095, 41769, TensorRT-LLM 14199.
    _fault("up_scaled:{x}", 5, _GATED, *_SCALE, size=(1.2, 1.7)),
    # SGLang 23625, 14102: an input scale that the checkpoint lacks.
    _fault("static_scale:{x}", 2, _DENSE, *_FEW_BITS, "activation-limit", "clipped-activations",
           size=(1, 2)),
    # verl 1803, miles 1678, UniRL 94.
    _fault("cast_fp8", 3, _ALL, *_FEW_BITS, "weight-precision"),
    # miles 3232, Megatron-Bridge 39, SGLang 36389.
    _fault("adapter_part_times:v_proj,2", 3, _KEYED, *_ADAPTER, **_LORA),
    # lorax 299, Megatron-LM (ISEEKYAN) 72: rank-stabilized scaling, sqrt(4).
    _fault("adapter_times:2", 2, _KEYED, *_ADAPTER, **_LORA),
    # keys_values 43, unsloth 1557.
    _fault("adapter_dropout:{x}", 2, _KEYED, "dropout", "nondeterminism", *_ADAPTER,
           side="learner", size=(0.15, 0.4), **_LORA),
    # vLLM 29071, 37796, vllm-omni 7681.
    _fault("resumed_twice:{x},3", 3, _ALL, *_REPEATED, size=(5, 15), digits=0),
    # SGLang 21583.
    _fault("stream_restarts:{x}", 1, _ALL, *_REPEATED, size=(6, 16), digits=0),
    # SGLang 14046, vLLM 17876, 34497, dflash 39.
    _fault("first_only", 4, _ALL, "missing-logprobs", "missing-values", "forced-token",
           "speculative-decoding"),
    # ms-swift 8196, SGLang 193.
    _fault("shift:-1", 2, _ALL, "off-by-one"),
    # tinker-feedback 148, NeMo-Aligner 46, NeMo RL 2852, verl 6240, sglang-omni 785.
    _fault("before_temperature", 5, _ALL, "raw-logprobs", "temperature", sampling=_ANY),
    # NeMo RL 3776, 3497, ms-swift 8442, tpu-inference 1386, TRL 6789.
    _fault("hidden_top_k:{x}", 5, _ALL, "truncation", "top-k", size=(3, 15), digits=0),
    # vLLM 50767, 25574, MTPLX 120, osaurus 2470.
    _fault("presence:{x}", 4, _ALL, *_PENALTIES, size=(0.3, 1.5)),
    # vmlx-swift 294, 295.
    _fault("presence_all:{x}", 2, _ALL, *_PENALTIES, size=(0.3, 1.5)),
    # verl 7270, 7298, prime-rl 886.
    _fault("repetition:{x}", 3, _ALL, *_PENALTIES, size=(0.18, 0.5), size_of="1+{x}"),
    # TRL 3853, open-r1 695, vLLM 16976, 16853, 16028, LiveCodeBench 146, prime-rl 86.
    _fault("begun_every:2", 7, _ALL, "prompt-ids"),
    # TRL 6515, 6294.
    _fault("tools_lost:{x}", 2, _ALL, "prompt-ids", size=(4, 7), digits=0),
    # ART 726, TRL 6250, verl 7322, agentcore-rl-toolkit 119.
    _fault("thinking_stripped", 4, _ALL, "prompt-ids", side="learner"),
    # cs336 15, ms-swift 10011, 10012.
    _fault("retokenised:{x}", 3, _ALL, "prompt-ids", side="learner", size=(0.45, 1)),
    # miles 885, slime 73, 1135, Megatron-LM 5882.
    _fault("zigzag_order:2", 4, _ALL, *_SHUFFLED, "context-parallel", "sequence-parallel",
           side="learner"),
    # nanoVLM 204, 201, TRL 3526, Fast-LLM 177.
    _fault("positions_continue", 4, _LEARNED, "position-ids", "position-embedding", "packing",
           "batch-variance", side="learner"),
    # Megatron-LM 6305, 2902, Megatron-LM (swiss-ai) 76, ms-swift 6056, Megatron-Bridge 506.
    _fault("rope_setting:original_max_position_embeddings,{x}", 5,
           _families("llama_scaled apertus_llama3"), *_ROPE, size=(80, 256), digits=0),
    # keras-hub 2696, 2981.
    _fault("rope_setting:beta_fast,{x}", 2, _families("qwen3_yarn deepseek_yarn"), *_ROPE,
           size=(1.5, 4)),
    # vLLM 42624, transformers (bigcode) 24.
    _fault("rope_base_times:{x}", 2, _ROTATED, *_ROPE, size=(0.01, 0.4), digits=3),
    # transformers 40126, vLLM 21927, 7442, vllm-gaudi 149.
    _fault("window_above:1", 4, tuple(_PATTERNED), "sliding-window", "model-config"),
    # vLLM 3385, TensorRT-LLM 5564, transformers 29623: one key fewer, or more.
    _fault("window_plus:-1", 3, tuple(_PATTERNED), "sliding-window", "model-config"),
    # miles 2722, Megatron-LM (ISEEKYAN) 49.
    _fault("slots_sorted", 2, _SLOTTED, "router-weights", "expert-order"),
    # executorch 22444, TransformerEngine 631.
    _fault("norm_plus_one:post_feedforward_layernorm", 2,
           _families("gemma2 gemma3 olmo2 olmo3 exaone4 vaultgemma beam"),
           "norm-offset", "norm-weights", "residual-scale"),
    # Megatron-LM 7576, Megatron-Bridge 2841, Automodel 1324, NeMo RL 2249, training-gym 100.
    _fault("gate_up_blocks:16", 5, _GATE_UP, "gate-layout", "gate-order", "gate-up-order",
           *_LAYOUT),
    # vllm-gguf-plugin 103, ColossalAI 817, transformers 37051.
    _fault("columns_of_first_rank", 3, _GATED, "parallel-layout", "lost-part", "partial-sync",
           *_LAYOUT),
    # transformers 46741, vLLM 53912, 55766, tokenspeed 15.
    _fault("state_chunk:{x}", 4, _HYBRID, "state-cache", "conv-state", "generation-path",
           "chunked-prefill", size=(3, 9), digits=0),
    # Liger-Kernel 127, 320, qlora-pipe 18.
    _fault("head_unscaled", 3, _families("gemma2 cohere2 granite cohere vaultgemma"),
           "logit-soft-cap", "logit-scale", "temperature", "model-config", side="learner"),
)  # fmt: skip
_BFLOAT, _HALF = {"dtype": "bfloat16"}, {"dtype": "float16"}
HEALTHY: Healthy = (
    ("", {**_BFLOAT, "attention": "eager", "batch_rows": 2}, _BFLOAT),
    ("", {**_HALF, "batch_tokens": 180}, {**_HALF, "attention": "eager"}),
    ("summed_in_parts:8", _BFLOAT, {**_BFLOAT, "batch_rows": 7}),
    ("summed_in_parts:2", _HALF, _HALF),
    ("", {**ADAPTER, "adapter_use": "merged", "batch_rows": 3}, ADAPTER),
    ("", {"batch_rows": 1}, {"batch_tokens": 400, "attention": "eager"}),
)
HEALTHY_FAMILIES = _ALL
ADAPTED_FAMILIES = _KEYED
"""Families with modules that the adapter of the plants changes."""
