"""A sixteenth set: a fifth natural draw, in two halves.

Sixteen single faults, eight doubles and four healthy pairs, each of a thread of a public issue
tracker, which is named next to it; only facts were used. No family occurs twice among the faulty
pairs. The faults of a double are of different kinds. Of two neighbors, a coin decides which belongs
to half A. The pairs, the names that count and the seed were committed before attribution was run on
any pair. Sizes were chosen without attribution: each fault alone makes a mean |Δp| of more than
.01, the faults of a double one of a similar size, and a healthy pair less than .006. One single
fault changes the sampled tokens and no value. The older checkpoint is given in every second pair
with old weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.probe.plants.draw import (
    ADAPTER,
    Drawn,
    Names,
    every_second_older,
    in_halves,
    tossed_halves,
)

SEED = 20261203
_LORA: dict[str, Any] = {"options": ADAPTER, "others": ADAPTER}
_OLD = ("partial-sync", "stale-weights", "weight-update", "mixed-weights")
_LAYOUT = ("weight-layout", "tensor-order", "swapped-weights")
_ROUTER = ("router-bias", "router-weights", "partial-sync", "weight-update")
_ADAPTER = ("adapter", "adapter-scale", "adapter-part", "lora-adapter")
_PENALTY = ("repetition-penalty", "sampling-penalties", "requested-penalties")
_QUANTISED = ("quantisation",)
_CACHED = ("kv-cache", "kv-scale")


def _one(family: str, fault: str, *names: str, **more: Any) -> Drawn:
    return Drawn(family, fault, (names,), **more)


def _two(family: str, faults: str, first: Names, second: Names, **more: Any) -> Drawn:
    return Drawn(family, faults, (first, second), **more)


SINGLES = (
    # text-generation-inference 1036, nano-vllm 99.
    _one("starcoder2", "row_bias_twice:2", "bias-scale", "row-parallel-bias", "tensor-scale"),
    # vLLM 49122, 49366, SGLang 35535.
    _one("aria", "shared_experts_times:2", "residual-scale", "shared-expert-scale",
         "shared-expert", "missing-experts", "expert-scale", "model-config"),
    # prime-rl 2953, DeepSpeed 8369.
    _one("dots1", "correction_moved:0.1", *_ROUTER, side="learner"),
    # vLLM 35932.
    _one("minimax_m2", "norm_sharded:2", "qk-norm", "norm-part", "parallel-layout"),
    # prime-rl 2823.
    _one("smollm3", "sparse_sync:0.3,STALE", *_OLD),
    # SkyRL 1680, verl 7978.
    _one("qwen3_moe", "halves_swapped:gate_up_proj", "gate-layout", "gate-order",
         "gate-up-order", *_LAYOUT),
    # mlx-lm and llama.cpp: the attention multiplier of a port of Granite.
    _one("granite", "plain_scale", "attention-scale", "model-config"),
    # tokenspeed 759, SGLang 34765.
    _one("glm4", "kv_unscaled:1.4", *_CACHED, "attention-scale", "value-scale"),
    # 1bit-MONSTER 637, mlx-swift-lm 459.
    _one("llama_tied", "raw+drafts_by_likeliest:1.5", "speculative-decoding", "wrong-sampler",
         "temperature"),
    # llama.cpp 27972.
    _one("nemotron", "drafts_certain:3", "missing-logprobs", "missing-values", "forced-token",
         "speculative-decoding"),
    # SkyRL 1908, miles 2235.
    _one("mixtral", "replay_shifted:1", "router-flips", "router-replay", "expert-replay",
         side="learner"),
    # prime-rl 2828.
    _one("cohere2", "without_window", "sliding-window", "model-config", side="learner"),
    # verl 7270, prime-rl 886.
    _one("qwen2", "repetition:1.08", *_PENALTY),
    # verl 6719, vLLM: keys of a tool's schema in another order.
    _one("exaone4", "spans_exchanged:2,2", "prompt-ids"),
    # llm-compressor and vLLM: an output head in fp8.
    _one("stablelm", "head_fp8", *_QUANTISED, "precision", "head-precision", "logit-precision"),
    # vLLM 6909, 55545, TensorRT-LLM 1669.
    _one("ministral3", "adapter_times:0.5", *_ADAPTER, **_LORA),
)  # fmt: skip
DOUBLES = (
    # verl 7904, and TRL 6789.
    _two("hyperclovax", "adapter_times:1.3+hidden_top_p:0.8", _ADAPTER, ("truncation",), **_LORA),
    # vLLM 42624, and NeMo RL 3008.
    _two("olmo2", "rope_base_times:0.5+fp8_products:32",
         ("rope-base", "rope-scaling", "model-config"), (*_QUANTISED, "precision")),
    # Megatron-Bridge 4657, and verl 3960.
    _two("glm4_moe", "router_correction_lost+system_prompt:2", _ROUTER, ("prompt-ids",)),
    # TransformerLens and vLLM: the scalar of queries, and ms-swift 8442.
    _two("gemma2", "plain_scale+hidden_min_p:0.1", ("attention-scale", "model-config"),
         ("truncation",)),
    # prime-rl 2823, and NeMo RL 3497.
    _two("llama", "sparse_sync:0.7,STALE+repetition:1.15", _OLD, _PENALTY),
    # NeMo Gym 1416, and miles 1345.
    _two("gpt_neox", "retokenised:0.3+ignores_temperature", ("prompt-ids",), ("temperature",),
         side="learner", sampling={"temperature": 0.9}),
    # SGLang 34765, and SkyRL: a temperature of the server's defaults.
    _two("deepseek_v2", "latent_fp8:e5m2+hidden_temperature:0.93", _CACHED, ("temperature",)),
    # vLLM 9744, and prime-rl 2438.
    _two("arcee", "old_prefix:STALE+four_bits",
         ("prefix-caching", "stale-cache", "mixed-weights"), _QUANTISED),
)  # fmt: skip
_BFLOAT = {"dtype": "bfloat16"}
HEALTHY = (
    Drawn("phi", "", (), options={**_BFLOAT, "batch_rows": 3},
          others={**_BFLOAT, "batch_tokens": 220}),
    Drawn("olmoe", "", (), options={"batch_rows": 5}, others={"attention": "eager"},
          sampling={"temperature": 0.8}),
    Drawn("helium", "summed_in_parts:4", (), options=_BFLOAT, others=_BFLOAT),
    Drawn("gemma3", "", (), options={**ADAPTER, "adapter_use": "merged"}, others=ADAPTER,
          sampling={"temperature": 1.1}),
)  # fmt: skip
_PAIRS = {"single": SINGLES, "double": DOUBLES, "healthy": HEALTHY}


def pairs() -> Iterator[Drawn]:
    """All pairs, in the order in which they are listed."""
    sizes = {kind: len(drawn) for kind, drawn in _PAIRS.items()}
    return every_second_older(
        in_halves("fifth-draw", SEED, sizes, lambda kind, n: _PAIRS[kind][n], tossed_halves)
    )
