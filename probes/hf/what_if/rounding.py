"""Rounding to a coarser number format, as quantized weights, activations and caches have it."""

from __future__ import annotations

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
FORMATS = (*_FLOATS, *_BITS)
SCALES = ("", "row", "tensor", "column", "group32", "group128")
"""Values that share a scale; without one, integers are scaled per row and floats not at all."""


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
    if not scale and form in _FLOATS:
        return _plain(values, form)
    if scale.startswith("group"):
        return _in_groups(values, form, int(scale.removeprefix("group")))
    whole = values.float()
    dims: Any = {"tensor": None, "column": -2}.get(scale, -1)
    largest = whole.abs().amax() if dims is None else whole.abs().amax(dim=dims, keepdim=True)
    return _scaled(whole, largest, form).to(values.dtype)


def _plain(values: Tensor, form: str) -> Tensor:
    most = torch.finfo(_FLOATS[form]).max
    return values.float().clamp(-most, most).to(_FLOATS[form]).to(values.dtype)


def _in_groups(values: Tensor, form: str, size: int) -> Tensor:
    columns = values.shape[-1]
    padded = torch.nn.functional.pad(values.float(), (0, -columns % size))
    groups = padded.reshape(*padded.shape[:-1], -1, size)
    result = _scaled(groups, groups.abs().amax(dim=-1, keepdim=True), form)
    return result.flatten(-2)[..., :columns].to(values.dtype)


def _scaled(values: Tensor, largest: Tensor, form: str) -> Tensor:
    most = torch.finfo(_FLOATS[form]).max if form in _FLOATS else 2.0 ** (_BITS[form] - 1) - 1
    scale = largest.clamp(min=1e-12) / most
    if form in _FLOATS:
        return (values / scale).to(_FLOATS[form]).float() * scale
    return (values / scale).round().clamp(-most, most) * scale


def saturated(values: Tensor, limit: float) -> Tensor:
    """Rounded to fp8 with a scale whose largest number is the limit, which clips the others."""
    scale = limit / torch.finfo(torch.float8_e4m3fn).max
    kept = values.float().clamp(-limit, limit) / scale
    return (kept.to(torch.float8_e4m3fn).float() * scale).to(values.dtype)
