"""Tiny checkpoints of a fourth set of families, for the plants of `engine_bugs`.

They add parts that the earlier families lack: learned positions with an offset, two norms in
parallel, slopes by head, corrected routers with groups, gated and linear attention, a state-space
layer next to attention, multipliers by depth, multi-query attention, and a bias of the head.
"""

from __future__ import annotations

from typing import Any

_GROUPED = {"num_key_value_heads": 2}
_GPT2_NAMES = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "n_inner": 96}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_ROUTED = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "moe_intermediate_size": 48, "n_group": 2, "topk_group": 1,
    "norm_topk_prob": True,
}  # fmt: skip
_LATENT = {
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "num_key_value_heads": 4,
}  # fmt: skip
ENGINE_BUG_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "opt": ("OPT", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    "falcon": (
        "Falcon",
        {"new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 96},
    ),
    "mpt": (
        "Mpt",
        {"d_model": 64, "n_heads": 4, "n_layers": 3, "max_seq_len": 256, "expansion_ratio": 2},
    ),
    "cohere": ("Cohere", {**_GROUPED, "logit_scale": 0.5, "use_qk_norm": True}),
    "glm4_moe": (
        "Glm4Moe",
        {**_GROUPED, **_ROUTED, "head_dim": 16, "use_qk_norm": True, "routed_scaling_factor": 1.5},
    ),
    "deepseek_v2": (
        "DeepseekV2", {**_ROUTED, **_LATENT, "topk_method": "group_limited_greedy"},
    ),
    "dots1": ("Dots1", {**_GROUPED, **_ROUTED, "head_dim": 16, "routed_scaling_factor": 2.5}),
    "gptj": ("GPTJ", {**_GPT2_NAMES, "rotary_dim": 8}),
    "codegen": ("CodeGen", {**_GPT2_NAMES, "rotary_dim": 8}),
    "gemma": ("Gemma", {**_GROUPED, "head_dim": 16}),
    "apertus": ("Apertus", _GROUPED),
    "hunyuan": ("HunYuanDenseV1", {**_GROUPED, "head_dim": 16}),
    "gpt_bigcode": ("GPTBigCode", _GPT2_NAMES),
    "phimoe": ("Phimoe", {**_GROUPED, **_EXPERTS, "lm_head_bias": True, "attention_bias": True}),
    "granitemoeshared": (
        "GraniteMoeShared",
        {**_GROUPED, **_EXPERTS, "shared_intermediate_size": 48, "residual_multiplier": 0.7,
         "attention_multiplier": 0.25},
    ),
    "minicpm3": (
        "MiniCPM3", {**_LATENT, "scale_emb": 2, "scale_depth": 1.0, "dim_model_base": 32},
    ),
    "falcon_h1": (
        "FalconH1",
        {**_GROUPED, "head_dim": 16, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16,
         "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_chunk_size": 32, "key_multiplier": 0.6},
    ),
    "qwen3_next": (
        "Qwen3Next",
        {**_GROUPED, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
         "moe_intermediate_size": 48, "shared_expert_intermediate_size": 48,
         "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
         "linear_value_head_dim": 16,
         "layer_types": ["linear_attention", "full_attention", "full_attention"]},
    ),
    "minimax_m2": ("MiniMaxM2", {**_GROUPED, **_EXPERTS, "head_dim": 16, "rotary_dim": 8}),
    "cwm": (
        "Cwm",
        {**_GROUPED, "head_dim": 16, "sliding_window": 16,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
}  # fmt: skip
"""Class prefix and settings by family."""
OFFSET_FAMILIES = ("gemma", "qwen3_next")
"""Families whose norms add one to their weights."""
HEAD_DEVIATION = {"cohere": 5.2, "minicpm3": 5.2}
"""Deviation of the logits before they are scaled."""
EMBEDDING_DEVIATION = {"gemma": 0.125, "minicpm3": 0.5}
