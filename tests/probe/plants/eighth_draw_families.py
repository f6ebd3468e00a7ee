"""A family for `eighth_draw`: attention scores that reach their soft-cap, as in large models."""

from __future__ import annotations

from typing import Any

EIGHTH_DRAW_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2_capped": (
        "Gemma2",
        {"num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 24,
         "sliding_window": 20, "attn_logit_softcapping": 2.0},
    ),
}  # fmt: skip
"""Class prefix and settings by family."""
OFFSET_FAMILIES = ("gemma2_capped",)
"""Families whose norms add one to their weights."""
EMBEDDING_DEVIATION = {"gemma2_capped": 0.125}
"""Deviation of embeddings that are scaled."""
