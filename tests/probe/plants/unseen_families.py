"""Tiny checkpoints of families that the plants of `catalogue.py` do not use.

They were chosen for parts that those families lack: layers with different position encodings,
attention sinks, multipliers, normalized queries and keys of full width, a gated shared expert,
learned positions, position biases, and short convolutions in place of attention.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch

from tests.probe.plants import (
    eighth_draw_families,
    field_bug_families,
    fourth_draw_families,
    issue_bug_families,
    recurring_bug_families,
    report_bug_families,
    second_draw_families,
    upstream_bug_families,
)
from tests.probe.plants.engine_bug_families import (
    EMBEDDING_DEVIATION,
    HEAD_DEVIATION,
    OFFSET_FAMILIES,
)

_GROUPED = {"num_key_value_heads": 2}
_WINDOWED = {
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
_YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
    "rope_theta": 10000.0, "beta_fast": 32.0, "beta_slow": 1.0,
}  # fmt: skip
_YARN_WHERE_FULL = {
    "full_attention": _YARN,
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
UNSEEN_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": (
        "Gemma3Text",
        {**_GROUPED, **_WINDOWED, "head_dim": 16, "query_pre_attn_scalar": 24,
         "rope_parameters": {
             "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
             "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}},
    ),
    "cohere2": (
        "Cohere2", {**_GROUPED, **_WINDOWED, "logit_scale": 0.5},
    ),
    "granite": (
        "Granite",
        {**_GROUPED, "embedding_multiplier": 0.2, "attention_multiplier": 0.35,
         "residual_multiplier": 0.6, "logits_scaling": 4.0, "tie_word_embeddings": True},
    ),
    "gpt_oss": (
        "GptOss",
        {**_GROUPED, **_WINDOWED, "head_dim": 16, "num_local_experts": 6,
         "num_experts_per_tok": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ),
    "olmo2": ("Olmo2", _GROUPED),
    "olmo3": ("Olmo3", {**_GROUPED, **_WINDOWED, "rope_parameters": _YARN_WHERE_FULL}),
    "smollm3": ("SmolLM3", {**_GROUPED, "no_rope_layers": [1, 0, 1]}),
    "qwen2_moe": (
        "Qwen2Moe",
        {**_GROUPED, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
         "shared_expert_intermediate_size": 64, "norm_topk_prob": True},
    ),
    "glm4": ("Glm4", {**_GROUPED, "head_dim": 16}),
    "stablelm": (
        "StableLm", {**_GROUPED, "qk_layernorm": True, "use_qkv_bias": True},
    ),
    "nemotron": ("Nemotron", {**_GROUPED, "head_dim": 16}),
    "starcoder2": (
        "Starcoder2", {**_GROUPED, "sliding_window": 20, "attention_dropout": 0.1},
    ),
    "phi3": (
        "Phi3",
        {**_GROUPED, "original_max_position_embeddings": 256,
         "rope_parameters": {
             "rope_type": "longrope", "rope_theta": 10000.0,
             "original_max_position_embeddings": 256, "partial_rotary_factor": 1.0,
             "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
             "long_factor": [1.2, 1.6, 2.2, 3.0, 4.0, 5.5, 7.5, 10.0]}},
    ),
    "gpt2": ("GPT2", {"tie_word_embeddings": True, "n_inner": 96}),
    "bloom": ("Bloom", {"tie_word_embeddings": False}),
    "lfm2": (
        "Lfm2",
        {**_GROUPED, "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3,
         "block_auto_adjust_ff_dim": False, "tie_word_embeddings": True},
    ),
}  # fmt: skip
"""Class prefix and settings by family."""
_OFFSET = (
    "gemma3", "nemotron", *OFFSET_FAMILIES, *field_bug_families.OFFSET_FAMILIES,
    *issue_bug_families.OFFSET_FAMILIES, *upstream_bug_families.OFFSET_FAMILIES,
    *eighth_draw_families.OFFSET_FAMILIES,
)  # fmt: skip
"""Families whose norms add one to their weights."""
_EMBEDDED = {
    "gemma3": 0.125, "granite": 1.3, "gpt2": 0.3, "lfm2": 0.3, **EMBEDDING_DEVIATION,
    **field_bug_families.EMBEDDING_DEVIATION, **report_bug_families.EMBEDDING_DEVIATION,
    **issue_bug_families.EMBEDDING_DEVIATION, **second_draw_families.EMBEDDING_DEVIATION,
    **fourth_draw_families.EMBEDDING_DEVIATION, **eighth_draw_families.EMBEDDING_DEVIATION,
}  # fmt: skip
"""Deviation of embeddings that are scaled, or tied to the head."""
_HEAD = {
    "cohere2": 5.2, **HEAD_DEVIATION, **report_bug_families.HEAD_DEVIATION,
    **issue_bug_families.HEAD_DEVIATION,
}  # fmt: skip
"""Deviation of the logits before they are scaled; 2.6 elsewhere."""


def drawn_unseen(name: str, weight: torch.Tensor, family: str) -> torch.Tensor:
    """Random values of a tensor, by its part in the model."""
    noise = torch.randn_like(weight)
    if family in upstream_bug_families.MIXED and name.endswith((".base", ".scale")):
        return 2.0 * noise
    if weight.ndim == 1 or name.endswith("_bias"):
        is_scale = re.search("norm|ln_", name) and name.endswith("weight")
        return (1.0 if is_scale and family not in _OFFSET else 0.0) + 0.2 * noise
    if "norm" in name:
        return 1.0 + 0.2 * noise
    if "lm_head" in name or name in ("decoder.weight", *recurring_bug_families.HEADS):
        return noise * _HEAD.get(family, 2.6) / math.sqrt(weight.shape[-1])
    if re.search(r"embed|wte|wpe", name):
        return noise * _EMBEDDED.get(family, 1.0)
    if "conv.conv" in name:
        return noise * 0.6
    inputs = weight.shape[-2 if family in ("gpt2", "gpt_oss") and weight.ndim != 2 else -1]
    if family in ("gpt2", "openai"):
        inputs = weight.shape[0]
    attends = r"q_proj|k_proj|qkv_proj|c_attn|query_key_value|gate\.weight|router\.weight"
    return noise * (1.7 if re.search(attends, name) else 1.0) / math.sqrt(inputs)
