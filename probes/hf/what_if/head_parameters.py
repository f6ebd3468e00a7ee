"""Edits of parameters that are no weights of a projection: numbers per head, rows of embeddings.

A rank that reads another rank's part, or a conversion in another order, gives each head the number
of another head. A kernel that lacks an argument, or adds it twice, computes with zeros or twice the
numbers. Embeddings that are divided among ranks, or enlarged, may lack the last rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from contract import InapplicableError
from torch import Tensor, nn

from hf.what_if.modules import hooked, layers, replaced

_MOST_HEADS = 512
_RANKS = (2, 4, 8)
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
        found |= {(name, -ranks): None for ranks in _RANKS if heads % ranks == 0 and heads > ranks}
    return [list(each) for each in found]


@contextmanager
def rolled_heads(model: nn.Module, value: Any) -> Iterator[None]:
    """Heads with the numbers of other heads, `["A_log", 2]`: each has those of two heads before.

    Below 0: each of so many ranks has the numbers of the first one.
    """
    name, far = str(value[0]), int(value[1])
    chosen = [weight for own, weight in _per_head(model) if own == name]
    if not chosen:
        raise InapplicableError(f"this model has no {name} per head")
    with replaced(chosen, partial(_rolled, far)):
        yield


def scaled(model: nn.Module) -> list[str]:
    """Names of parameters with one number per head that a kernel may leave out, or add twice."""
    return list(dict.fromkeys(name for name, _ in _per_head(model) if name != "sinks"))


@contextmanager
def parameter_scale(model: nn.Module, value: Any) -> Iterator[None]:
    """A factor on parameters with one number per head, `["D", 0.0]`."""
    name, factor = str(value[0]), float(value[1])
    chosen = [weight for own, weight in _per_head(model) if own == name]
    if not chosen:
        raise InapplicableError(f"this model has no {name} per head")
    with replaced(chosen, lambda data: factor * data):
        yield


def ends(model: Any) -> list[int]:
    """Tokens from which on embeddings may be missing: the last 1, 2, 4 … of the vocabulary."""
    count = len(model.get_input_embeddings().weight)
    return [count - 2**power for power in range(20) if 2 ** (power + 1) <= count]


@contextmanager
def embedding_end(model: Any, value: Any) -> Iterator[None]:
    """The embeddings of the tokens from an id on are zero; a tied output head keeps its rows."""
    module, end = model.get_input_embeddings(), int(value)
    if not 0 <= end < len(module.weight):
        raise InapplicableError(f"this model has no embedding {end}")

    def without(_module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output.masked_fill((inputs[0] >= end)[..., None], 0.0)

    with hooked([module], without):
        yield


def _rolled(far: int, data: Tensor) -> Tensor:
    flat = data.flatten()
    own = flat.roll(far) if far > 0 else flat[: flat.numel() // -far].repeat(-far)
    return own.view_as(data)


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
