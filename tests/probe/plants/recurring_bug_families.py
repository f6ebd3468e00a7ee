"""Tiny checkpoints of a ninth set of families, for the plants of `recurring_bugs`.

They add parts that the earlier families lack: clipped queries, keys and values, norms of queries
before a rotation of half of each head, biased output projections, an MLP without a gate, layers
that run in cycles, and norms after blocks with windows.
"""

from __future__ import annotations

from typing import Any

_GROUPED = {"num_key_value_heads": 2}
_HEADS = {**_GROUPED, "head_dim": 16}
_WINDOWED = {
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
RECURRING_BUG_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "arcee": ("Arcee", _HEADS),
    "ernie4_5": ("Ernie4_5", _HEADS),
    "exaone4": ("Exaone4", {**_HEADS, **_WINDOWED}),
    "gpt_neox_japanese": ("GPTNeoXJapanese", {}),
    "granitemoe": ("GraniteMoe", {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "helium": ("Helium", _HEADS),
    "mamba": ("Mamba", {"state_size": 8, "time_step_rank": 8}),
    "olmoe": (
        "Olmoe", {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "clip_qkv": 1.0},
    ),
    "hrm_text": ("HrmText", {"num_key_value_heads": 4, "head_dim": 16}),
    "persimmon": ("Persimmon", {"partial_rotary_factor": 0.5}),
    "qwen2": ("Qwen2", _GROUPED),
    "seed_oss": ("SeedOss", {**_HEADS, "attention_out_bias": True}),
}  # fmt: skip
"""Class prefix and settings by family."""
HEADS = ("output_projection.weight", "embed_out.weight")
"""Output projections with names of their own."""
