"""Tiny checkpoints of a fifth set of families, for the plants of `field_bugs`.

They add parts that the earlier families lack: state-space layers alone with grouped norms, experts
whose inputs are scaled, chunked attention with a temperature by position, norms without weights,
fused gate and up projections, and short convolutions next to experts.
"""

from __future__ import annotations

from typing import Any

_GROUPED = {"num_key_value_heads": 2}
_HEADS = {**_GROUPED, "head_dim": 16}
_SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_STATE = {
    "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_d_state": 16,
    "mamba_chunk_size": 32,
}  # fmt: skip
_GROUPED_EXPERTS = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 48, "n_group": 2, "topk_group": 1,
}  # fmt: skip
_LATENT = {
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "num_key_value_heads": 4,
}  # fmt: skip
_WINDOWED = {
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
FIELD_BUG_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "olmo": ("Olmo", _GROUPED),
    "glm": ("Glm", {**_HEADS, "attention_bias": True}),
    "ministral": ("Ministral", {**_HEADS, **_WINDOWED}),
    "llama4": (
        "Llama4Text",
        {**_HEADS, "intermediate_size_mlp": 96, "num_local_experts": 4, "num_experts_per_tok": 1,
         "attention_chunk_size": 16, "no_rope_layers": [1, 0, 1], "floor_scale": 4},
    ),
    "hunyuan_moe": ("HunYuanMoEV1", {**_HEADS, "num_experts": 4, "moe_topk": 2}),
    "lfm2_moe": (
        "Lfm2Moe",
        {**_GROUPED, **_SPARSE, "layer_types": ["conv", "full_attention", "conv"],
         "conv_L_cache": 3, "num_dense_layers": 1, "tie_word_embeddings": True},
    ),
    "bamba": (
        "Bamba", {**_GROUPED, **_STATE, "attn_layer_indices": [1]},
    ),
    "nemotron_h": (
        "NemotronH",
        {**_HEADS, **_GROUPED_EXPERTS, "layers_block_type": ["mamba", "attention", "mamba"],
         "mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 2,
         "chunk_size": 32},
    ),
    "granitemoehybrid": (
        "GraniteMoeHybrid",
        {**_GROUPED, **_STATE, "layer_types": ["mamba", "attention", "mamba"],
         "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 48,
         "residual_multiplier": 0.7, "attention_multiplier": 0.25},
    ),
    "solar_open": ("SolarOpen", {**_HEADS, **_GROUPED_EXPERTS}),
    "youtu": ("Youtu", _LATENT),
    "jais2": ("Jais2", _GROUPED),
    "flex_olmo": ("FlexOlmo", {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2}),
    "hyperclovax": ("HyperCLOVAX", _HEADS),
    "afmoe": (
        "Afmoe",
        {**_HEADS, **_WINDOWED, **_SPARSE, "num_shared_experts": 1, "num_dense_layers": 1},
    ),
    "vaultgemma": (
        "VaultGemma", {**_HEADS, **_WINDOWED, "query_pre_attn_scalar": 24},
    ),
}  # fmt: skip
"""Class prefix and settings by family."""
OFFSET_FAMILIES = ("vaultgemma",)
"""Families whose norms add one to their weights."""
EMBEDDING_DEVIATION = {"vaultgemma": 0.125, "lfm2_moe": 0.3}
"""Deviation of embeddings that are scaled, or tied to the head."""
