"""LoRA adapters with random weights, in peft's format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

RANK, ALPHA = 4, 8


def write_adapter(
    model: Path,
    folder: Path,
    ranks: Mapping[str, int] | None = None,
    seed: int = 3,
    **config: Any,
) -> Path:
    """An adapter of all query and value projections.

    Args:
        model: directory of the base model.
        folder: receives the adapter.
        ranks: other ranks of layers, by an end of their names.
        seed: of its weights.
        config: further keys of its configuration.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, weight in load_file(model / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if not layer.endswith(("q_proj", "v_proj")):
            continue
        outputs, inputs = weight.shape
        rank = next((r for end, r in (ranks or {}).items() if layer.endswith(end)), RANK)
        path = f"base_model.model.{layer}"
        shape_a, shape_b = (rank, inputs), (outputs, rank)
        tensors[f"{path}.lora_A.weight"] = 0.1 * torch.randn(shape_a, generator=generator)
        tensors[f"{path}.lora_B.weight"] = 0.1 * torch.randn(shape_b, generator=generator)
    save_file(tensors, folder / "adapter_model.safetensors")
    content = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA} | config
    content |= {"target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": str(model)}
    content |= {"rank_pattern": dict(ranks)} if ranks else {}
    (folder / "adapter_config.json").write_text(json.dumps(content))
    return folder
