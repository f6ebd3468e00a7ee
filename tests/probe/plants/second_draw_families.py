"""Tiny checkpoints of an eleventh set of families, for the plants of `second_draw`.

They add what common checkpoints of reinforcement learning have and the earlier families lack:
tied heads of Llama and Qwen 2, rotations scaled as in Llama 3 or by yarn, and latent attention
whose scale follows from yarn.
"""

from __future__ import annotations

from typing import Any

from tests.probe.plants.family_settings import LATENT, LLAMA3

_GROUPED = {"num_key_value_heads": 2}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
SECOND_DRAW_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama_scaled": ("Llama", {**_GROUPED, "rope_parameters": LLAMA3}),
    "llama_tied": ("Llama", {**_GROUPED, "tie_word_embeddings": True}),
    "qwen2_tied": ("Qwen2", {**_GROUPED, "tie_word_embeddings": True}),
    "qwen3_yarn": ("Qwen3", {**_GROUPED, "head_dim": 16, "rope_parameters": _YARN}),
    "deepseek_yarn": (
        "DeepseekV3",
        {**LATENT, "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
    ),
}
"""Class prefix and settings by family."""
EMBEDDING_DEVIATION = {"llama_tied": 0.35, "qwen2_tied": 0.35}
"""Deviation of embeddings that are tied to the head."""
