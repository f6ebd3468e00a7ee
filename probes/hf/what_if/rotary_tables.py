"""Edits of the sines and cosines that rotary modules return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.hooks import until_end
from hf.what_if.positions import rotary_modules

ROTATED_BY = ("cosines", "sines")
"""The two tables of rotary positions, in the order in which modules return them."""


@contextmanager
def rope_part(model: nn.Module, value: Any) -> Iterator[None]:
    """A factor on sines or on cosines alone, `["sines", 0.0]`."""
    part, factor = str(value[0]), float(value[1])
    factors = [factor if name == part else 1.0 for name in ROTATED_BY]

    def scaled(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        if isinstance(output, Tensor):  # complex numbers, as in Llama 4 and DeepSeek-V2
            return torch.complex(output.real * factors[0], output.imag * factors[1])
        return tuple(one * by for one, by in zip(output, factors, strict=True))

    modules = {id(module): module for module, _ in rotary_modules(model)}.values()
    if not modules or part not in ROTATED_BY:
        raise InapplicableError(f"this model has no {part} of rotary positions")
    with until_end([module.register_forward_hook(scaled) for module in modules]):
        yield


@contextmanager
def rotation_limit(model: nn.Module, value: Any) -> Iterator[None]:
    """Positions from a number on are not rotated: the table of sines and cosines has ended."""

    def ended(_module: nn.Module, inputs: Any, named: Any, output: Any) -> Any:
        late = (_positions_read(inputs, named) >= int(value))[..., None]
        if isinstance(output, Tensor):
            return output.masked_fill(late, 1.0)
        return tuple(
            table.masked_fill(late, unrotated)
            for table, unrotated in zip(output, (1.0, 0.0), strict=True)
        )

    modules = {id(module): module for module, _ in rotary_modules(model)}.values()
    handles = [module.register_forward_hook(ended, with_kwargs=True) for module in modules]
    if not handles:
        raise InapplicableError("this model has no rotary positions")
    with until_end(handles):
        yield


def _positions_read(inputs: Any, named: Any) -> Tensor:
    """The positions that a rotary module reads, shape (B, L).

    Raises:
        InapplicableError: if it reads none.
    """
    for given in (named.get("position_ids"), *inputs):
        if isinstance(given, Tensor) and given.ndim == 2 and not given.is_floating_point():
            return given
    raise InapplicableError("the rotary module of this model reads no positions")
