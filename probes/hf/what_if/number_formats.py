"""Number formats that engines use by mistake, and faults of the kernels that quantize.

- `weight_saturation`: weights in fp8 with a scale for a larger range than the format has, so the
  largest are cut: 240 of 448 where the scale is one of E4M3 and the format that of MI300
- `input_rotation`: inputs of the last projections of blocks, rotated by a Hadamard matrix. Weights
  that were rotated against outliers (QuaRot, SpinQuant) need it; without, it is left out or applied
  on one side alone. The matrix is its own inverse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.what_if.modules import layers, replaced
from hf.what_if.numerics import changed_inputs, quantised_layers

Listed = Iterator[tuple[str, Any, str]]
LIMITS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Where fp8 numbers with a fixed scale end."""
_ROUNDINGS = ("bfloat16", "float16", "int8", "int8/tensor", "int4", "int4/group16", "int4/group32",
              "int4/group64", "int4/group128", "int4/zero16", "int4/zero32", "int4/zero64",
              "int4/zero128", "int4/next16", "int4/next32", "int4/next64", "int4/next128",
              "int4/below16", "int4/below32", "int4/below64", "int4/below128", "mxfp4", "mxfp8",
              "nvfp4", "fp8", "fp8/row", "fp8/tensor", "fp8/block16", "fp8/block32", "fp8/block64",
              "fp8/block128", "fp8/transposed16", "fp8/transposed32", "fp8/transposed64",
              "fp8/transposed128")  # fmt: skip
_MULTIPLIED = ("mxfp8", "int8", "int8/tensor", "fp8/row", "fp8/tensor", "fp8/block16",
               "fp8/block32", "fp8/block64", "fp8/block128", "fp8/block16/row", "fp8/block32/row",
               "fp8/block64/row", "fp8/block128/row")  # fmt: skip
"""Formats in which engines multiply weights and activations."""
_SCALES = ("tensor", "row")
_RANGES = (0.25, 0.4, 0.5, 240 / 448, 0.7, 0.85)
"""Largest number of a format, relative to the one that its scale was computed for."""
_SIZES = (16, 32, 64, 128, 256, 512, 1024)
"""Powers of two that rotations of blocks have."""
_FP8 = torch.finfo(torch.float8_e4m3fn)


def listed() -> Listed:
    """Edits that need no module of their own."""
    yield "generated", [True], "choice"
    yield "cache_hole", [1], "choice"
    yield "compute_dtype", ["bfloat16", "float16"], "choice"
    yield "weight_rounding", _ROUNDINGS, "choice"
    yield "activation_rounding", ["int8", "fp8", "fp8/row"], "choice"
    yield "linear_rounding", _MULTIPLIED, "choice"
    yield "input_saturation", LIMITS, "number"


def of_matrices(model: Any) -> Listed:
    """Edits of weights, and of what projections read."""
    for scale in _SCALES:
        yield "weight_saturation", [[scale, share] for share in _RANGES], "number"
    for name, width in _last_projections(model).items():
        sizes = [size for size in _SIZES if width % size == 0]
        yield "input_rotation", [[name, size] for size in sizes], "choice"


@contextmanager
def weight_saturation(model: Any, value: Any) -> Iterator[None]:
    """Weights of linear layers in fp8 that end at a share of their largest number, by scale."""
    scale, share = str(value[0]), float(value[1])
    if scale not in _SCALES:
        raise InapplicableError(f"weights have no scale per {scale!r}")
    weights = [module.weight for module in quantised_layers(model)]
    with replaced(weights, partial(_saturated, scale, share)):
        yield


def _saturated(scale: str, share: float, weight: Tensor) -> Tensor:
    sizes = weight.float().abs()
    largest = sizes.amax(-1, keepdim=True) if scale == "row" else sizes.amax()
    step = largest.clamp(min=1e-12) / _FP8.max
    most = _FP8.max * min(share, 1.0)
    codes = (weight.float() / step).clamp(-most, most).to(torch.float8_e4m3fn)
    return (codes.float() * step).to(weight.dtype)


def _last_projections(model: Any) -> dict[str, int]:
    """Names of linear layers that return to the stream, with the width of what they read."""
    hidden = model.config.get_text_config().hidden_size
    return {
        name.rpartition(".")[2]: module.in_features
        for name, module in layers(model)[-1].named_modules()
        if isinstance(module, nn.Linear)
        and module.out_features == hidden
        and name.rpartition(".")[2] not in _FIRST
    }


_FIRST = frozenset({"q_proj", "k_proj", "v_proj", "query", "key", "value"})
"""Projections of queries, keys and values, which may be as wide as the stream."""


@contextmanager
def input_rotation(model: Any, value: Any) -> Iterator[None]:
    """Linear layers of a name read inputs that are rotated by blocks, `["down_proj", 32]`."""
    name, size = str(value[0]), int(value[1])
    chosen = [
        module
        for layer in layers(model)
        for path, module in layer.named_modules()
        if isinstance(module, nn.Linear) and path.rpartition(".")[2] == name
    ]
    if not chosen or any(module.in_features % size for module in chosen):
        raise InapplicableError(f"blocks of {size} do not fill the inputs of {name}")
    matrix = hadamard(size)

    def rotated(inputs: Tensor) -> Tensor:
        blocks = inputs.reshape(*inputs.shape[:-1], -1, size)
        turned: Tensor = (blocks @ matrix.to(inputs)).flatten(-2)
        return turned

    with changed_inputs(chosen, rotated):
        yield


def hadamard(size: int) -> Tensor:
    """The Hadamard matrix of a power of two, scaled to a rotation."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        upper, lower = torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)
        matrix = torch.cat([upper, lower])
    return matrix / math.sqrt(size)
