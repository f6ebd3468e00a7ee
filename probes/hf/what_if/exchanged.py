"""Edits of weights that a loader puts into the wrong place: siblings exchanged, or transposed.

They have the form of faults of conversion: fused projections that are split in another order, one
norm loaded for two, and square matrices in the layout of another library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

from contract import InapplicableError
from torch import Tensor, nn

from hf.what_if.modules import layers, norms, replaced

_SWAP = "swap "


def exchanges(model: nn.Module) -> dict[str, list[str]]:
    """Modules of layers whose weights fit each other, by place: `*.k_proj`, `1.self_attn.k_proj`.

    Projections of one parent may be exchanged; a norm may have the weights of another one, too.
    """
    norm_ids = {id(module) for _, module in norms(model)}
    found: dict[str, dict[str, None]] = {}
    for number, layer in enumerate(layers(model)):
        for path, parent in layer.named_modules():
            for name, source in _exchangeable(parent, norm_ids):
                in_layer = ".".join(filter(None, (str(number), path, name)))
                for place in (f"*.{name}", in_layer):
                    found.setdefault(place, {})[source] = None
    return {place: list(sources) for place, sources in found.items()}


def _exchangeable(parent: nn.Module, norm_ids: set[int]) -> Iterator[tuple[str, str]]:
    """The children of a module with children that may give them their weights.

    Args:
        parent: the module.
        norm_ids: identities of the model's norms.
    """
    for (one, first), (other, second) in combinations(parent.named_children(), 2):
        if not _fits(first, second):
            continue
        is_norm = id(first) in norm_ids and id(second) in norm_ids
        if is_norm or isinstance(first, nn.Linear):
            yield one, f"{_SWAP}{other}"
        if is_norm:
            yield one, other
            yield other, one


def squares(model: nn.Module) -> list[str]:
    """Places of square projections: `*.o_proj` in all layers, and each layer's."""
    found: dict[str, None] = {}
    for number, layer in enumerate(layers(model)):
        for path, module in layer.named_modules():
            if isinstance(module, nn.Linear) and module.in_features == module.out_features:
                found[f"*.{path.rpartition('.')[2]}"] = None
                found[f"{number}.{path}"] = None
    return list(found)


@contextmanager
def weights_from(model: nn.Module, value: Any) -> Iterator[None]:
    """Weights of a sibling, `["*.ln_mlp", "ln_attn"]`, or both exchanged with `swap ln_attn`."""
    place, source = str(value[0]), str(value[1])
    name = place.rpartition(".")[2]
    taken: dict[int, Tensor] = {}
    weights: list[nn.Parameter] = []
    for parent in _parents(model, place):
        one, other = (getattr(parent, each, None) for each in (name, source.removeprefix(_SWAP)))
        if not isinstance(one, nn.Module) or not isinstance(other, nn.Module):
            continue
        if not _fits(one, other):
            continue
        of_one, of_other = dict(one.named_parameters()), dict(other.named_parameters())
        for key, weight in of_one.items():
            taken[id(weight)] = of_other[key].data
            weights.append(weight)
            if source.startswith(_SWAP):
                taken[id(of_other[key])] = weight.data
                weights.append(of_other[key])
    if not weights:
        raise InapplicableError(f"this model has no {place} with the shape of {source}")
    before = [weight.data for weight in weights]
    try:
        for weight in weights:
            weight.data = taken[id(weight)]
        yield
    finally:
        for weight, now in zip(weights, before, strict=True):
            weight.data = now


@contextmanager
def transposed(model: nn.Module, value: Any) -> Iterator[None]:
    """Square matrices are transposed, `["*.o_proj", true]`, or `["1.self_attn.o_proj", true]`."""
    place = str(value[0])
    name = place.rpartition(".")[2]
    found = [getattr(parent, name, None) for parent in _parents(model, place)]
    weights = [
        module.weight
        for module in found
        if isinstance(module, nn.Linear) and module.in_features == module.out_features
    ]
    if not weights:
        raise InapplicableError(f"this model has no square matrix {place}")
    with replaced(weights, lambda weight: weight.T.contiguous()):
        yield


def _parents(model: nn.Module, place: str) -> list[nn.Module]:
    """The modules that may hold the last part of a place."""
    where = place.split(".")[:-1]
    if where == ["*"]:
        return [module for layer in layers(model) for module in layer.modules()]
    return [layers(model)[int(where[0])].get_submodule(".".join(where[1:]))]


def _fits(one: nn.Module, other: nn.Module) -> bool:
    if type(one) is not type(other):
        return False
    shapes = [{n: w.shape for n, w in each.named_parameters()} for each in (one, other)]
    return bool(shapes[0]) and shapes[0] == shapes[1]
