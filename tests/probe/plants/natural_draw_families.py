"""Tiny checkpoints of a tenth set of families, for the plants of `natural_draw`.

They add rotations that are scaled as in Llama 3, tied heads with Granite's multipliers, and two
ports of Llama.
"""

from __future__ import annotations

from typing import Any

from tests.probe.plants.family_settings import LLAMA3

_GROUPED = {"num_key_value_heads": 2}
_HEADS = {**_GROUPED, "head_dim": 16}
_MULTIPLIERS = {"embedding_multiplier": 0.2, "residual_multiplier": 0.6, "logits_scaling": 3.0}
NATURAL_DRAW_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "apertus_llama3": ("Apertus", {**_GROUPED, "rope_parameters": LLAMA3}),
    "granite_tied": ("Granite", {**_GROUPED, **_MULTIPLIERS, "tie_word_embeddings": True}),
    "internlm3": ("InternLM3", _HEADS),
    "iquestcoder": (
        "IQuestCoder",
        {**_HEADS, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
}
"""Class prefix and settings by family."""
