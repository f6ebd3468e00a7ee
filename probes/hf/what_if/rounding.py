"""Rounding to a coarser number format, as quantized weights, activations and caches have it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor

_FLOATS: dict[str, Any] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp8": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}
_BITS = {"int8": 8, "int4": 4}
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The magnitudes of a 4-bit number with two bits of exponent and one of mantissa."""
_MX, _NV, _MX8 = "mxfp4", "nvfp4", "mxfp8"
_FP8_MOST = torch.finfo(torch.float8_e4m3fn).max
SCALED_ONCE = ("unread", "unwritten")
"""How the scale of a cache can be missing on one side."""
CACHE_SCALES = (0.5, 0.7, 1.4, 2.0)
FORMATS = (*_FLOATS, *_BITS, _MX, _NV, _MX8)
_GROUPS = (16, 32, 64, 128)
_IN_GROUPS = (f"{k}{size}" for k in ("group", "zero", "next", "below") for size in _GROUPS)
_BLOCKS = (16, 32, 64, 128)
_IN_BLOCKS = (f"{kind}{size}" for kind in ("block", "transposed") for size in _BLOCKS)
SCALES = ("", "row", "tensor", "column", *_IN_GROUPS, *_IN_BLOCKS)
"""Values that share a scale; without one, integers are scaled per row and floats not at all. With
`zero32`, groups of 32 have a zero point, too. With `block128`, squares of a matrix share one; with
`transposed128`, the scales of a square matrix are read with rows and columns exchanged. With
`next32`, a group is read with the scale of the next group of its row, with `below32` with that of
the row below."""


def rounded(values: Tensor, scheme: str) -> Tensor:
    """Round values and return them in their own dtype.

    Args:
        values: of shape (…, rows, columns).
        scheme: a format and, after a slash, a scale: `int4/group32`, `fp8/row`, `bfloat16`.

    Raises:
        InapplicableError: if the scheme is unknown.
    """
    form, _, scale = scheme.partition("/")
    if form not in FORMATS or scale not in SCALES:
        raise InapplicableError(f"there is no rounding to {scheme!r}")
    if form in (_MX, _NV):
        return _in_groups(values, 32 if form == _MX else 16, partial(_in_four_bits, form))
    if form == _MX8:
        return _in_groups(values, 32, _in_eight_bits)
    if not scale and form in _FLOATS:
        return _plain(values, form)
    if scale.startswith("group"):
        return _in_groups(values, int(scale.removeprefix("group")), partial(_of_group, form))
    if scale.startswith(("next", "below")):
        kind = scale.rstrip("0123456789")
        change = partial(_of_other_group, form, -2 if kind == "next" else -3)
        return _in_groups(values, int(scale.removeprefix(kind)), change)
    if scale.startswith(("block", "transposed")):
        return _in_blocks(values, form, scale)
    if scale.startswith("zero") and form in _BITS:
        return _in_groups(values, int(scale.removeprefix("zero")), partial(_with_zero, form))
    whole = values.float()
    dims: Any = {"tensor": None, "column": -2}.get(scale, -1)
    largest = whole.abs().amax() if dims is None else whole.abs().amax(dim=dims, keepdim=True)
    return _scaled(whole, largest, form).to(values.dtype)


def _plain(values: Tensor, form: str) -> Tensor:
    most = torch.finfo(_FLOATS[form]).max
    return values.float().clamp(-most, most).to(_FLOATS[form]).to(values.dtype)


def _in_groups(values: Tensor, size: int, change: Callable[[Tensor], Tensor]) -> Tensor:
    columns = values.shape[-1]
    padded = torch.nn.functional.pad(values.float(), (0, -columns % size))
    result = change(padded.reshape(*padded.shape[:-1], -1, size))
    return result.flatten(-2)[..., :columns].to(values.dtype)


def _in_blocks(values: Tensor, form: str, scale: str) -> Tensor:
    """Values with a scale per square block; matrices that squares do not fill stay as they are."""
    kind = scale.rstrip("0123456789")
    size = int(scale.removeprefix(kind))
    if values.shape[-1] % size or values.shape[-2] % size:
        return values
    *rest, rows, columns = values.shape
    blocks = values.float().reshape(*rest, rows // size, size, columns // size, size)
    largest = blocks.abs().amax((-3, -1), keepdim=True)
    found = _scaled(blocks, largest, form)
    if kind == "transposed" and blocks.shape[-4] == blocks.shape[-2]:
        found = found * (largest.transpose(-4, -2) / largest.clamp(min=1e-12))
    return found.reshape(values.shape).to(values.dtype)


def _of_group(form: str, groups: Tensor) -> Tensor:
    return _scaled(groups, groups.abs().amax(dim=-1, keepdim=True), form)


def _of_other_group(form: str, along: int, groups: Tensor) -> Tensor:
    """Groups that are read with the scale of the next one along an axis."""
    largest = groups.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12)
    return _scaled(groups, largest, form) * (largest.roll(-1, along) / largest)


def _with_zero(form: str, groups: Tensor) -> Tensor:
    """Integers between the smallest and the largest value of a group, as in AWQ and GPTQ."""
    most = 2.0 ** _BITS[form] - 1
    low, high = groups.amin(dim=-1, keepdim=True), groups.amax(dim=-1, keepdim=True)
    scale = (high - low).clamp(min=1e-8) / most
    zero = (-low / scale).round()
    return (((groups / scale).round() + zero).clamp(0, most) - zero) * scale


def _in_four_bits(form: str, groups: Tensor) -> Tensor:
    """Four-bit floats: a power of two is the scale of a group in MXFP4, an fp8 number in NVFP4."""
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12)
    if form == _MX:
        scale = torch.exp2(scale.log2().floor() - 2)
    else:
        whole = scale.amax() / (6.0 * torch.finfo(torch.float8_e4m3fn).max)
        scale = (scale / 6.0 / whole).to(torch.float8_e4m3fn).float().clamp(min=2**-9) * whole
    grid = torch.tensor(_FP4, device=groups.device)
    middles = (grid[1:] + grid[:-1]) / 2
    sizes = grid[torch.bucketize((groups / scale).abs(), middles)]
    return sizes * groups.sign() * scale


def _in_eight_bits(groups: Tensor) -> Tensor:
    """Values in E4M3 with a power of two as the scale of a group, which clips the largest ones."""
    most = torch.finfo(torch.float8_e4m3fn).max
    largest = groups.abs().amax(dim=-1, keepdim=True).clamp(min=1e-30)
    scale = torch.exp2(largest.log2().floor() - 8)
    return (groups / scale).clamp(-most, most).to(torch.float8_e4m3fn).float() * scale


def _scaled(values: Tensor, largest: Tensor, form: str) -> Tensor:
    most = torch.finfo(_FLOATS[form]).max if form in _FLOATS else 2.0 ** (_BITS[form] - 1) - 1
    scale = largest.clamp(min=1e-12) / most
    if form in _FLOATS:
        return (values / scale).to(_FLOATS[form]).float() * scale
    return (values / scale).round().clamp(-most, most) * scale


def scaled_once(values: Tensor, form: str, scale: float) -> Tensor:
    """Rounded to fp8, and divided by a scale before (`unread`) or multiplied after (`unwritten`).

    Raises:
        InapplicableError: for another form, or a scale that is not positive.
    """
    if form not in SCALED_ONCE or not scale > 0:
        raise InapplicableError(f"a scale {form!r} of {scale:g} is unknown")
    before, after = (1 / scale, 1.0) if form == "unread" else (1.0, scale)
    kept = (values.float() * before).clamp(-_FP8_MOST, _FP8_MOST).to(torch.float8_e4m3fn)
    return (kept.float() * after).to(values.dtype)


def saturated(values: Tensor, limit: float) -> Tensor:
    """Rounded to fp8 with a scale whose largest number is the limit, which clips the others."""
    scale = limit / torch.finfo(torch.float8_e4m3fn).max
    kept = values.float().clamp(-limit, limit) / scale
    return (kept.to(torch.float8_e4m3fn).float() * scale).to(values.dtype)
