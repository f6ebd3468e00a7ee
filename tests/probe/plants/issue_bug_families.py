"""Tiny checkpoints of a seventh set of families, for the plants of `issue_bugs`.

They add parts that the earlier families lack: an indexer that selects keys, delta rules with
negative eigenvalues or a decay for each channel, state-space layers with normed steps or next to
experts, norms inside of blocks, positions without parameters, and alternating updates of several
residual streams. The indexer has many heads: with few, scores of many keys are 0 and equal, and
which of them are selected depends on the kernel.
"""

from __future__ import annotations

from typing import Any

_GROUPED = {"num_key_value_heads": 2}
_HEADS = {**_GROUPED, "head_dim": 16}
_SPARSE = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
_LATENT = {
    "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}  # fmt: skip
_ROUTED = {**_SPARSE, "n_routed_experts": 8, "n_shared_experts": 1}
_DENSE_FIRST = {"mlp_layer_types": ["dense", "sparse", "sparse"]}
_WINDOWED = {
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
_LINEAR = {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
_DELTA = {"linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
ISSUE_BUG_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bitnet": ("BitNet", _GROUPED),
    "doge": ("Doge", _GROUPED),
    "glm_moe_dsa": (
        "GlmMoeDsa",
        {**_LATENT, **_ROUTED, **_DENSE_FIRST, "q_lora_rank": 24, "head_dim": 8,
         "index_topk": 12, "index_head_dim": 16, "index_n_heads": 16},
    ),
    "glm4_moe_lite": ("Glm4MoeLite", {**_LATENT, **_ROUTED, **_DENSE_FIRST, "q_lora_rank": 24}),
    "olmo_hybrid": ("OlmoHybrid", {**_GROUPED, **_LINEAR, **_DELTA, "linear_num_key_heads": 4}),
    "hy_v3": (
        "HYV3",
        {**_HEADS, **_SPARSE, **_DENSE_FIRST, "num_experts": 6, "router_scaling_factor": 1.5},
    ),
    "jamba": (
        "Jamba",
        {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 3,
         "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
         "mamba_d_state": 8, "mamba_dt_rank": 8},
    ),
    "falcon_mamba": ("FalconMamba", {"state_size": 8, "time_step_rank": 8}),
    "cohere2_moe": (
        "Cohere2Moe",
        {**_HEADS, **_WINDOWED, "num_experts": 6, "num_experts_per_tok": 2,
         "num_shared_experts": 1, "logit_scale": 0.5, "expert_selection_fn": "sigmoid"},
    ),
    "qwen3_5_moe": (
        "Qwen3_5MoeText",
        {**_HEADS, **_LINEAR, **_SPARSE, **_DELTA, "num_experts": 4, "linear_num_key_heads": 2,
         "shared_expert_intermediate_size": 48},
    ),
    "granitemoe_swa": (
        "GraniteMoeSWA",
        {**_GROUPED, **_WINDOWED, "num_local_experts": 4, "num_experts_per_tok": 2,
         "shared_intermediate_size": 48, "attention_multiplier": 0.25},
    ),
    "kimi_linear": (
        "KimiLinear",
        {**_LATENT, **_SPARSE, **_LINEAR, **_DENSE_FIRST, "num_local_experts": 6,
         "linear_head_dim": 16, "linear_num_heads": 4},
    ),
    "xglm": (
        "XGLM",
        {"d_model": 64, "ffn_dim": 96, "num_layers": 3, "attention_heads": 4, "dropout": 0.0},
    ),
    "gemma3n": (
        "Gemma3nText",
        {**_HEADS, **_WINDOWED, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64,
         "laurel_rank": 8, "num_kv_shared_layers": 0,
         "activation_sparsity_pattern": [0.8, 0.0, 0.0]},
    ),
}  # fmt: skip
"""Class prefix and settings by family."""
OFFSET_FAMILIES = ("qwen3_5_moe",)
"""Families whose norms add one to their weights."""
EMBEDDING_DEVIATION = {"xglm": 0.125, "gemma3n": 0.125}
"""Deviation of embeddings that are scaled."""
HEAD_DEVIATION = {"cohere2_moe": 5.2}
"""Deviation of the logits before they are scaled."""
