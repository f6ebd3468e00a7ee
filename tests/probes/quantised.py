"""Checkpoints with quantised weights, as llm-compressor writes them, for real vLLM to load.

Written without compressed-tensors, which is installed only in vLLM's environment: the projections'
weights become integers with scales, and `config.json` declares it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

PROJECTION = re.compile(r"_proj\.weight$")
EXPERT = re.compile(r"\.experts\.")
"""Not quantized: vLLM has no CPU kernel for them."""

Parts = dict[str, Tensor]


def int8(folder: Path, from_: Path) -> Path:
    """W8A8: a scale for each output channel of weights, and for each token of activations."""
    scheme = {
        "weights": _numbers(8, "channel"),
        "input_activations": {**_numbers(8, "token"), "dynamic": True},
    }
    return _write(folder, from_, "int-quantized", scheme, _int8)


def int4(folder: Path, from_: Path, group: int = 32) -> Path:
    """W4A16: weights alone, with a scale for each group of inputs of each output channel."""
    weights = {**_numbers(4, "group"), "group_size": group}
    scheme = {"weights": weights, "input_activations": None}
    return _write(folder, from_, "pack-quantized", scheme, lambda weight: _int4(weight, group))


def _numbers(bits: int, strategy: str) -> dict[str, Any]:
    return {"num_bits": bits, "type": "int", "symmetric": True, "strategy": strategy}


def _int8(weight: Tensor) -> Parts:
    values, scale = _rounded(weight.float(), 127)
    return {"weight": values.to(torch.int8), "weight_scale": scale.to(weight.dtype)}


def _int4(weight: Tensor, group: int) -> Parts:
    rows, columns = weight.shape
    values, scale = _rounded(weight.float().reshape(rows, columns // group, group), 7)
    # Eight numbers from 0 to 15 an int32, the first in its lowest bits.
    nibbles = (values.reshape(rows, columns // 8, 8) + 8).to(torch.int64)
    packed = (nibbles << (4 * torch.arange(8))).sum(dim=-1)
    packed = torch.where(packed >= 2**31, packed - 2**32, packed)
    return {
        "weight_packed": packed.to(torch.int32),
        "weight_scale": scale.squeeze(-1).to(weight.dtype),
        "weight_shape": torch.tensor([rows, columns]),
    }


def _rounded(weight: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Integers and the scale of each last axis."""
    scale = weight.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / most
    return (weight / scale).round().clamp(-most, most), scale


def _write(
    folder: Path,
    from_: Path,
    form: str,
    scheme: dict[str, Any],
    quantise: Callable[[Tensor], Parts],
) -> Path:
    shutil.copytree(from_, folder, dirs_exist_ok=True)
    weights: Parts = {}
    ignored = ["lm_head"]
    for name, tensor in load_file(from_ / "model.safetensors").items():
        if PROJECTION.search(name) and not EXPERT.search(name):
            stem = name.removesuffix("weight")
            weights |= {stem + part: value.contiguous() for part, value in quantise(tensor).items()}
        else:
            weights[name] = tensor
            ignored += [name.removesuffix(".weight")] if EXPERT.search(name) else []
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], **scheme}},
        "ignore": [*ignored, "re:.*mlp\\.gate$", "re:.*mlp\\.experts.*"],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return folder
