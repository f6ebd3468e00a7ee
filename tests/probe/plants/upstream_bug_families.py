"""Tiny checkpoints of an eighth set of families, for the plants of `upstream_bugs`.

They add parts that the earlier families lack: hyper-connections with normalized mixing, gated units
with a limit, norms around each block of a sparse model, experts in attention itself, attention over
convolved queries and keys, relative positions with a table, local attention with learned positions,
state-space layers alone with a gated norm, and decoders with encoder-style layer norms.
"""

from __future__ import annotations

from typing import Any

_GROUPED = {"num_key_value_heads": 2}
_HEADS = {**_GROUPED, "head_dim": 16}
_SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_LATENT = {
    "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "q_lora_rank": 24,
}  # fmt: skip
_ROUTED = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
    "n_shared_experts": 1,
}  # fmt: skip
_BY_GROUPS = {"n_group": 2, "topk_group": 1}
_DENSE_FIRST = {"mlp_layer_types": ["dense", "sparse", "sparse"]}
_INDEXED = {"index_topk": 12, "index_head_dim": 16, "index_n_heads": 16}
_WINDOWED = {
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
_LINEAR = {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
UPSTREAM_BUG_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "axk1": ("AXK1", {**_LATENT, **_ROUTED, **_BY_GROUPS, **_DENSE_FIRST}),
    "bailing_hybrid": (
        "BailingHybrid",
        {**_LATENT, **_ROUTED, **_BY_GROUPS, "num_local_experts": 8, "layer_group_size": 3,
         "head_dim": 16, "first_k_dense_replace": 1},
    ),
    "deepseek_v32": (
        "DeepseekV32",
        {**_LATENT, **_ROUTED, **_BY_GROUPS, **_DENSE_FIRST, **_INDEXED, "head_dim": 8},
    ),
    "deepseek_v4": (
        "DeepseekV4",
        {**_ROUTED, "num_key_value_heads": 1, "head_dim": 16, "q_lora_rank": 24, "o_groups": 2,
         "o_lora_rank": 16, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 4,
         "hc_mult": 4, "sliding_window": 8},
    ),
    "flint": ("Flint", {**_HEADS, **_SPARSE, **_WINDOWED, "shared_expert_intermediate_size": 48}),
    "gpt_neo": (
        "GPTNeo",
        {"num_layers": 3, "num_heads": 4, "window_size": 12,
         "attention_types": [[["global", "local", "global"], 1]]},
    ),
    "hy_v4": (
        "HYV4",
        {**_LATENT, **_ROUTED, **_DENSE_FIRST, **_INDEXED, "head_dim": 16, "hc_mult": 2,
         "swiglu_limit": 1.0},
    ),
    "inkling": (
        "InklingText",
        {**_HEADS, **_ROUTED, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2,
         "swa_head_dim": 16, "sliding_window_size": 16, "d_rel": 8, "rel_extent": 64,
         "logits_mup_width_multiplier": 1.0},
    ),
    "jetmoe": (
        "JetMoe",
        {**_GROUPED, "kv_channels": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "kolibri1": (
        "Kolibri1", {**_HEADS, **_SPARSE, **_WINDOWED, "shared_expert_intermediate_size": 48},
    ),
    "lfm3": (
        "Lfm3",
        {**_HEADS, "sliding_window": 16,
         "layer_types": ["conv", "full_attention", "sliding_attention"]},
    ),
    "mamba2": (
        "Mamba2",
        {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2, "chunk_size": 32},
    ),
    "minimax_m3": (
        "MiniMaxM3VLText",
        {**_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "dense_intermediate_size": 96,
         "shared_intermediate_size": 48, "intermediate_size": 48, "rotary_dim": 8,
         "swiglu_limit": 1.0, "index_n_heads": 4, "index_head_dim": 16, "index_block_size": 8,
         "index_topk_blocks": 2},
    ),
    "modernbert": (
        "ModernBertDecoder",
        {"layer_types": ["full_attention", "sliding_attention", "full_attention"],
         "local_attention": 16, "cls_token_id": 2, "sep_token_id": 1},
    ),
    "qwen3_5": (
        "Qwen3_5Text",
        {**_HEADS, **_LINEAR, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
         "linear_value_head_dim": 16, "linear_num_key_heads": 2},
    ),
    "zaya": ("Zaya", {**_HEADS, **_SPARSE, "num_experts_per_tok": 1, "router_hidden_size": 32}),
}  # fmt: skip
"""Class prefix and settings by family."""
OFFSET_FAMILIES = ("qwen3_5", "minimax_m3")
"""Families whose norms add one to their weights."""
MIXED = ("deepseek_v4",)
"""Families whose streams are mixed with large coefficients, so that their normalization matters."""
