"""Tiny checkpoints of an eleventh set of families, for the plants of `second_draw`.

They add what common checkpoints of reinforcement learning have and the earlier families lack:
tied heads of Llama and Qwen 2, rotations scaled as in Llama 3 or by yarn, and latent attention
whose scale follows from yarn.
"""

from __future__ import annotations

from typing import Any

_GROUPED = {"num_key_value_heads": 2}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
_LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 48,
    "n_group": 2,
    "topk_group": 1,
}
SECOND_DRAW_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama_scaled": ("Llama", {**_GROUPED, "rope_parameters": _LLAMA3}),
    "llama_tied": ("Llama", {**_GROUPED, "tie_word_embeddings": True}),
    "qwen2_tied": ("Qwen2", {**_GROUPED, "tie_word_embeddings": True}),
    "qwen3_yarn": ("Qwen3", {**_GROUPED, "head_dim": 16, "rope_parameters": _YARN}),
    "deepseek_yarn": (
        "DeepseekV3",
        {**_LATENT, "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
    ),
}
"""Class prefix and settings by family."""
EMBEDDING_DEVIATION = {"llama_tied": 0.35, "qwen2_tied": 0.35}
"""Deviation of embeddings that are tied to the head."""
