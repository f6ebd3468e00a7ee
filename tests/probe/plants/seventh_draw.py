"""An eighteenth set: a seventh natural draw, in two halves.

Twenty single faults, four doubles and four healthy pairs. All kinds are reported in public issue
trackers (`THREADS`), and none is in an earlier set; families, sizes and the names that count were
chosen with them. The halves follow from a rule: pairs of a group are sorted by family, and every
second one is in half B. A fault, or each of two alone, moves the probabilities by more than .01 on
average, and healthy pairs by less than .006, which was measured without attribution. The author had
not read attribution's code, but its documentation in part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.probe.plants.draw import ADAPTER, Drawn, Names

THREADS: dict[str, str] = {
    "absorbed_old": "sgl-project/sglang#6265, sgl-project/sglang#4961",
    "columns_of_shortest": "huggingface/trl#6191",
    "dummy_pair": "sgl-project/sglang#38298",
    "expert_summed_twice": "sgl-project/sglang#32962",
    "group_index_ignored": "AutoGPTQ/AutoGPTQ#201",
    "indexer_unrectified": "ml-explore/mlx-lm#531",
    "layer_scalars": "quantumaikr/quant.cpp#96",
    "linear_gate": "Avarok-Cybersecurity/atlas#754, sgl-project/sgl-kernel-npu#578",
    "magnitudes": "vllm-project/vllm#6983, NVIDIA-NeMo/Megatron-Bridge#6031",
    "mask_of_first_row": "meta-pytorch/attention-gym#98",
    "middle_cut": "verl-project/verl#5965",
    "norm_of_first_shard": "sgl-project/sglang#20967",
    "race": "pegainfer-project/pegainfer#410, sgl-project/sglang#26627",
    "rotation_lost": "spcl/QuaRot#4",
    "router_norm_twice": "NVIDIA-NeMo/Automodel#1852",
    "rows_averaged": "hiyouga/LlamaFactory#10547",
    "sines_lost": "vllm-project/vllm-ascend#12723",
    "step_bias_twice": "modular/modular#5748",
    "streaming": "ggml-org/llama.cpp#27583, LostRuins/koboldcpp#550",
    "token_of_neighbor": "tenstorrent/tt-metal#54565, vllm-project/vllm-gaudi#642",
    "top_sigma": "ikawrakow/ik_llama.cpp#504",
    "unrotated_from": "microsoft/onnxruntime#28205, vllm-project/vllm-ascend#1266",
    "weights_saturated": "ROCm/TransformerEngine#485",
    "xtc": "ml-explore/mlx-lm#1372, ggml-org/llama.cpp#9742",
    "yarn_untruncated": "vllm-project/vllm#27722",
}
"""Where a fault of each kind was reported."""

_OLD = ("partial-sync", "stale-weights", "weight-update", "mixed-weights")
_ROPE = ("rope-base", "rope-scaling", "rope-layout", "model-config")
_EXPERT = ("router-weights", "expert-weights", "expert-scale", "tensor-scale", "weight-scale")
_SCALE = ("residual-scale", "layer-scale", "tensor-scale", "weight-scale", "model-config")
_FEW_BITS = ("quantisation", "weight-precision", "clipped-weights", "quantisation-scale",
             "block-scale")  # fmt: skip
_ADAPTER = ("adapter", "adapter-part", "adapter-scale", "lora-adapter")
_BATCH = ("batch-variance", "attended-padding", "causal-mask", "packing")
_PATH = ("generation-path", "response-ids", "state-cache")
_SIGMA = ("truncation", "top-sigma")
_WINDOW = ("sliding-window", "cache-eviction", "kv-cache", "lost-keys")
_ROWS = ("lost-part", "embedding-rows", "vocabulary-rows", "partial-sync", "swapped-weights")
_STEPS = ("time-steps", "time-step-bias", "bias-scale", "tensor-scale", "weight-scale")
_XTC = ("xtc", "truncation", "excluded-tokens", "wrong-sampler")
_ROTATED = ("weight-layout", "quantisation", "weight-rotation", "tensor-order", "swapped-weights")
_LOST = ("missing-weights", "lost-part", "random-weights", *_OLD)
_SHARD = ("norm-weights", "parallel-layout", "weight-layout", "lost-part", "partial-sync")
_GATE = ("activation", "gate-activation", "output-gate")
_ROUTER = ("router-input", "router-norm", "router-weights", "extra-norm")
_INDEXER = ("indexer", "sparse-attention", "indexer-activation", "indexer-scores")
_COLUMNS = ("off-by-one", "shuffled", "prompt-offset")

SINGLES: tuple[tuple[str, str, Names], ...] = (
    ("minicpm3", "dummy_pair:1", _LOST),
    ("deepseek_v3", "absorbed_old:STALE", _OLD),
    ("gemma4", "router_norm_twice", _ROUTER),
    ("gemma4_unified", "layer_scalars:0.8,1.3,0.9", _SCALE),
    ("qwen3_5", "linear_gate:sigmoid", _GATE),
    ("qwen3_yarn", "yarn_untruncated", _ROPE),
    ("deepseek_v32", "indexer_unrectified", _INDEXER),
    ("hunyuan", "weights_saturated:240", _FEW_BITS),
    ("smollm3", "token_of_neighbor:7", _PATH),
    ("exaone4", "xtc:0.1", _XTC),
    ("seed_oss", "sines_lost", ("rope-sines", "rope-rotation", *_ROPE)),
    ("glm4", "unrotated_from:24", ("position-ids", "position-limit", "rope-table", *_ROPE)),
    ("olmo2", "race:0.08", ("nondeterminism",)),
    ("qwen3_moe", "expert_summed_twice:1", _EXPERT),
    ("minimax_m2", "norm_of_first_shard:2", _SHARD),
    ("nemotron", "rotation_lost:32", _ROTATED),
    ("arcee", "streaming:4,12", _WINDOW),
)
"""Families, faults of the sampler, and accepted names."""
LEARNER: tuple[tuple[str, str, Names, dict[str, Any]], ...] = (
    ("iquestcoder", "magnitudes:0.3", _ADAPTER, ADAPTER),
    ("qwen2", "mask_of_first_row", _BATCH, {}),
    ("cohere", "columns_of_shortest", _COLUMNS, {}),
)
"""Families, faults of the learner, accepted names, and options of both sides."""
DOUBLES: tuple[tuple[str, str, tuple[Names, ...]], ...] = (
    ("granite", "streaming:4,12+top_sigma:1", (_WINDOW, _SIGMA)),
    ("bamba", "step_bias_twice+middle_cut:10", (_STEPS, ("prompt-ids",))),
    ("internlm3", "rows_averaged:56+group_index_ignored:16", (_ROWS, _FEW_BITS)),
    ("apertus", "xtc:0.1+weights_saturated:240", (_XTC, _FEW_BITS)),
)
"""Families, faults of the sampler, and accepted names."""
_BFLOAT, _HALF = {"dtype": "bfloat16"}, {"dtype": "float16"}
HEALTHY: tuple[tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
    ("nanochat", "", {**_BFLOAT, "attention": "eager"}, {**_BFLOAT, "batch_rows": 5}, {}),
    ("solar_open", "", {**_HALF, "batch_tokens": 150}, _HALF, {"temperature": 0.8}),
    ("glm", "summed_in_parts:4", _BFLOAT, _BFLOAT, {}),
    ("jais2", "", {**ADAPTER, "adapter_use": "merged"}, {**ADAPTER, "batch_rows": 2}, {}),
)
"""Families, faults, options of either engine and requested sampling of healthy pairs."""


def _single() -> Iterator[Drawn]:
    for family, fault, names in SINGLES:
        yield Drawn(family, fault, (names,), stale="STALE" in fault)
    for family, fault, names, options in LEARNER:
        yield Drawn(family, fault, (names,), side="learner", options=options, others=options)


def pairs() -> Iterator[Drawn]:
    """All pairs with the groups of their halves."""
    groups: dict[str, list[Drawn]] = {
        "": list(_single()),
        "-double": [Drawn(family, fault, names) for family, fault, names in DOUBLES],
        "-healthy": [
            Drawn(family, fault, (), options=options, others=others, sampling=sampling)
            for family, fault, options, others, sampling in HEALTHY
        ],
    }
    for ending, members in groups.items():
        ordered = sorted(members, key=lambda each: each.family)
        for number, each in enumerate(ordered):
            yield replace(each, group=f"seventh-draw-{'ab'[number % 2]}{ending}")
