"""Relatives of the faults of `seventh_draw` that were mended; none is planted in a set."""

from __future__ import annotations

from typing import Any

import torch

from tests.probe.plants.computing import _layers, _modules, add_faults
from tests.probe.plants.seventh_draw_faults import _hadamard, _linears


def _cosines_lost(engine: Any, _: str) -> None:
    """Cosines are read where there are zeros."""
    for _name, module in _modules(engine, "rotary"):
        module.register_forward_hook(lambda _m, _x, out: (torch.zeros_like(out[0]), out[1]))


def _rows_saturated(engine: Any, value: str) -> None:
    """Scales of rows for a maximum of 448 in a format that ends at a smaller one."""
    with torch.no_grad():
        for module in _linears(engine):
            scale = module.weight.abs().amax(1, keepdim=True) / 448
            low = (module.weight / scale).clamp(-float(value), float(value))
            module.weight.copy_(low.to(torch.float8_e4m3fn).float() * scale)


def _heads_unrotated(engine: Any, size: str) -> None:
    """The output projection of attention is rotated by heads, and what it reads is not."""
    matrix = _hadamard(int(size))
    with torch.no_grad():
        for layer in _layers(engine):
            weight = layer.self_attn.o_proj.weight
            weight.copy_((weight.unflatten(1, (-1, int(size))) @ matrix).flatten(1))


def _stream_scaled(engine: Any, value: str) -> None:
    """`X,…`: what each layer returns is multiplied by a number."""
    for layer, factor in zip(_layers(engine), value.split(","), strict=True):

        def hook(_m: Any, _x: Any, out: Any, factor: float = float(factor)) -> Any:
            return (out[0] * factor, *out[1:]) if isinstance(out, tuple) else out * factor

        layer.register_forward_hook(hook)


add_faults(
    {
        "cosines_lost": _cosines_lost,
        "heads_unrotated": _heads_unrotated,
        "rows_saturated": _rows_saturated,
        "stream_scaled": _stream_scaled,
    }
)
