"""Tiny checkpoints of a sixth set of families, for the plants of `report_bugs`.

They add parts that the earlier families lack: rotation of a part of the head in one kind of layer,
sinks in one kind of layer, values with another width and a multiplier, experts that return their
input, routers with a norm of their own, a block that several layers share, differential attention,
and a capped head without multipliers.
"""

from __future__ import annotations

from typing import Any

_GROUPED = {"num_key_value_heads": 2}
_HEADS = {**_GROUPED, "head_dim": 16}
_SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_WINDOWED = {
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
_PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
_HALF = {**_PLAIN, "partial_rotary_factor": 0.5}
_YARN = {
    "rope_type": "yarn", "factor": 64.0, "original_max_position_embeddings": 64,
    "rope_theta": 10000.0, "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 1.0,
    "partial_rotary_factor": 0.5,
}  # fmt: skip
_MULTIPLIERS = {
    "embedding_multiplier": 1.0, "attention_multiplier": 0.35, "residual_multiplier": 0.8,
    "logits_scaling": 1.0,
}  # fmt: skip
REPORT_BUG_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "laguna": (
        "Laguna",
        {**_HEADS, **_WINDOWED, **_SPARSE, "shared_expert_intermediate_size": 48,
         "rope_parameters": {"full_attention": _YARN, "sliding_attention": _PLAIN}},
    ),
    "mimo_v2_flash": (
        "MiMoV2Flash",
        {**_HEADS, **_WINDOWED, "v_head_dim": 8, "n_routed_experts": 8, "num_experts_per_tok": 2,
         "moe_intermediate_size": 48, "attention_value_scale": 0.707,
         "rope_parameters": {"full_attention": _HALF, "sliding_attention": _HALF}},
    ),
    "longcat_flash": (
        "LongcatFlash",
        {"num_hidden_layers": 4, "ffn_hidden_size": 96, "q_lora_rank": 24, "kv_lora_rank": 16,
         "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 16, "head_dim": 8,
         "moe_topk": 2, "n_routed_experts": 4, "zero_expert_num": 2,
         "expert_ffn_hidden_size": 48, "routed_scaling_factor": 1.5},
    ),
    "gemma4": (
        "Gemma4Text",
        {**_HEADS, "sliding_window": 16, "global_head_dim": 16,
         "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
         "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64,
         "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
         "moe_intermediate_size": 48},
    ),
    "zamba2": (
        "Zamba2",
        {"layers_block_type": ["mamba", "hybrid", "mamba"], "mamba_d_state": 16,
         "mamba_ngroups": 2, "n_mamba_heads": 8, "chunk_size": 32, "adapter_rank": 8,
         "use_mem_rope": True, "num_key_value_heads": 4},
    ),
    "granite_swa": ("GraniteSWA", {**_GROUPED, **_WINDOWED, **_MULTIPLIERS}),
    "ernie4_5_moe": (
        "Ernie4_5_Moe",
        {**_GROUPED, "moe_intermediate_size": 48, "moe_k": 2, "moe_num_experts": 6,
         "moe_num_shared_experts": 1},
    ),
    "exaone_moe": (
        "ExaoneMoe", {**_HEADS, **_WINDOWED, **_SPARSE, "sliding_window_pattern": "LGL"},
    ),
    "nanochat": ("NanoChat", _GROUPED),
    "ministral3": (
        "Ministral3",
        {**_HEADS,
         "rope_parameters": {
             "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0,
             "beta_slow": 1.0, "original_max_position_embeddings": 64, "mscale": 1.0,
             "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}},
    ),
    "mellum": ("Mellum", {**_HEADS, **_WINDOWED, **_SPARSE}),
    "diffllama": ("DiffLlama", _HEADS),
}  # fmt: skip
"""Class prefix and settings by family."""
EMBEDDING_DEVIATION = {"gemma4": 0.125, "ministral3": 0.35}
"""Deviation of embeddings that are scaled, or read as a head."""
HEAD_DEVIATION = {"nanochat": 3.2}
"""Deviation of the logits before they are capped."""
