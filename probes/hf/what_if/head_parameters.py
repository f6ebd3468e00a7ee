"""Edits of parameters that have one number per head, as the decay of linear attention.

A rank that reads another rank's part, or a conversion in another order, gives each head the number
of another head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from contract import InapplicableError
from torch import Tensor, nn

from hf.what_if.modules import layers, replaced

_MOST_HEADS = 512
_OF_LAYERS = ("weight", "bias")
"""Names of parameters with one number per channel."""


def rolls(model: nn.Module) -> list[list[Any]]:
    """Parameters by name, and by how many heads their numbers may be shifted."""
    found: dict[tuple[str, int], None] = {}
    for name, weight in _per_head(model):
        heads = weight.numel()
        for far in (1, heads - 1, heads // 2, heads // 4):
            if 0 < far < heads:
                found[name, far] = None
    return [list(each) for each in found]


@contextmanager
def rolled_heads(model: nn.Module, value: Any) -> Iterator[None]:
    """Heads with the numbers of other heads, `["A_log", 2]`: each has those of two heads before."""
    name, far = str(value[0]), int(value[1])
    chosen = [weight for own, weight in _per_head(model) if own == name]
    if not chosen:
        raise InapplicableError(f"this model has no {name} per head")
    with replaced(chosen, partial(_rolled, far)):
        yield


def _rolled(far: int, data: Tensor) -> Tensor:
    return data.flatten().roll(far).view_as(data)


def _per_head(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters of layers with one dimension of several numbers, by their own name."""
    return [
        (name, weight)
        for layer in layers(model)
        for path, weight in layer.named_parameters()
        if (name := path.rpartition(".")[2]) not in _OF_LAYERS
        and 1 < weight.numel() <= _MOST_HEADS
        and weight.numel() == max(weight.shape)
    ]
