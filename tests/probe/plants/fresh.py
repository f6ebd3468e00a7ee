"""Plants of a third set of families, most with two faults; written before their first run.

The names that count were fixed before the first run. The doubles mix what the search treats
differently: edits of the forward pass, other weights, prompts, sampling, the reported form, and
faults of some responses only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.probe.plants.computing import _modules, add_faults

Names = tuple[str, ...]
_GROUPED = {"num_key_value_heads": 2}
_EXPERTS = {"num_experts_per_tok": 2, "intermediate_size": 48}
FRESH_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2": ("Qwen2", _GROUPED),
    "exaone4": (
        "Exaone4",
        {**_GROUPED, "head_dim": 16, "sliding_window": 16, "sliding_window_pattern": "LG",
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    "olmoe": ("Olmoe", {**_GROUPED, **_EXPERTS, "num_experts": 6, "clip_qkv": 1.0}),
    "granitemoe": (
        "GraniteMoe",
        {**_GROUPED, **_EXPERTS, "num_local_experts": 4, "embedding_multiplier": 1.0,
         "attention_multiplier": 0.35, "residual_multiplier": 0.6, "logits_scaling": 1.0},
    ),
    "arcee": ("Arcee", _GROUPED),
    "ernie4_5": ("Ernie4_5", {**_GROUPED, "head_dim": 16, "use_bias": True}),
    "helium": ("Helium", {**_GROUPED, "head_dim": 16}),
    "seed_oss": ("SeedOss", {**_GROUPED, "head_dim": 16, "attention_bias": True}),
    "persimmon": ("Persimmon", {}),
}  # fmt: skip
"""Class prefix and settings by family."""


def _with_config(name: str, value: Any) -> Callable[[Any, str], None]:
    def fault(engine: Any, _: str) -> None:
        assert getattr(engine._model.config, name) != value
        setattr(engine._model.config, name, value)

    return fault


def _rotated_where_full(engine: Any, _: str) -> None:
    """Layers with full attention, which have no positions, are rotated like the others."""
    full = [layer for _, layer in _modules(engine, "attention") if not layer.is_sliding]
    assert full
    for layer in full:
        layer.sliding_window = None


add_faults(
    {
        "unclipped": _with_config("clip_qkv", None),
        "rotated_where_full": _rotated_where_full,
    }
)
SINGLES: tuple[tuple[str, str, Names, str], ...] = (
    ("qwen2", "without_bias:v_proj", ("missing-bias",), "sampler"),
    ("exaone4", "rotated_where_full", ("rope-layers", "rope-base", "model-config"), "sampler"),
    ("olmoe", "unclipped", ("qkv-clip", "model-config"), "sampler"),
    ("arcee", "activation:relu", ("activation",), "sampler"),
    ("ernie4_5", "rope_halves", ("rope-layout",), "sampler"),
    ("granitemoe", "attention_scale:0.714", ("attention-scale", "model-config"), "learner"),
)
"""Family, fault, accepted names and side."""
DOUBLES: tuple[tuple[str, str, tuple[Names, ...], str, bool], ...] = (
    ("qwen2", "without_bias:v_proj+hidden_temperature:0.85",
     (("missing-bias",), ("temperature",)), "sampler", False),
    ("exaone4", "every_fourth:1.4+rope_theta:500",
     (("temperature",), ("rope-base",)), "sampler", False),
    ("helium", "log2+rope_theta:500", (("log-base",), ("rope-base",)), "learner", False),
    ("olmoe", "qk_norm", (("qk-norm",), ("partial-sync",)), "sampler", True),
    ("granitemoe", "attention_scale:0.714+hidden_top_k:6",
     (("attention-scale", "model-config"), ("truncation",)), "sampler", False),
    ("arcee", "averaged+rope_linear:2",
     (("averaging",), ("rope-scaling", "rope-base")), "sampler", False),
    ("seed_oss", "begun+without_bias:q_proj",
     (("prompt-ids",), ("missing-bias",)), "sampler", False),
    ("ernie4_5", "sixth_swapped+activation:gelu",
     (("shuffled", "swapped-responses"), ("activation",)), "sampler", False),
    ("persimmon", "norm_eps:0.1", (("norm-epsilon",), ("partial-sync",)), "sampler", True),
)  # fmt: skip
"""Family, faults, accepted names, side, and whether a layer is stale, too."""
