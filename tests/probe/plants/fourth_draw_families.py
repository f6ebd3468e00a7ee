"""Tiny checkpoints of a twelfth set of families, for the plants of `fourth_draw`.

They add parts that the earlier families lack: norms whose weights depend on their input, gated
attention between two pairs of norms, attention over the outputs of earlier layers, and experts of
a decoder of a multimodal model.
"""

from __future__ import annotations

from typing import Any

from tests.probe.plants.family_settings import LATENT

_HEADS = {"num_key_value_heads": 2, "head_dim": 16}
FOURTH_DRAW_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "aria": (
        "AriaText",
        {**_HEADS, "moe_num_experts": 4, "moe_topk": 2, "moe_num_shared_experts": 1},
    ),
    "axk2": (
        "AXK2",
        {**LATENT, "index_topk": 2048, "index_head_dim": 8, "index_n_heads": 2, "head_dim": 8,
         "gated_norm_rank": 8},
    ),
    "beam": ("Beam", _HEADS),
    "gemma4_unified": (
        "Gemma4UnifiedText",
        {**_HEADS, "sliding_window": 16, "global_head_dim": 16,
         "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
    ),
    "inkling2": ("Inkling2Text", _HEADS),
}  # fmt: skip
"""Class prefix and settings by family."""
EMBEDDING_DEVIATION = {"gemma4_unified": 0.125}
"""Deviation of embeddings that are scaled."""
