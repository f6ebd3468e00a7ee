"""Edits of where the learner's LoRA adapter acts: not everywhere, or on other weights.

Engines map the names of an adapter to fused projections and numbered layers. A name that they do
not know is dropped without a word; a wrong slice or number adds an update to another weight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from contract import InapplicableError
from torch import Tensor, nn

from hf.adapters import Update, adapter_updates, with_changed_weights

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_LAYER_MOVES = ("next", "next in a circle", "previous", "previous in a circle")
_RANKS = "ranks above "
_MOST_LAYERS = 64
"""Layers up to which each is tried alone."""


def parts(model: nn.Module) -> list[str]:
    """Parts of an adapter: projections, blocks and layers that not all updates belong to, ranks.

    `ranks above 8` is what an engine loses that reserves room for 8 ranks.
    """
    names = [update.layer for update in adapter_updates(model)]
    found: dict[str, None] = {}
    for name in names:
        *_, block, projection = name.split(".")
        found |= {projection: None, block: None}
    numbers = dict.fromkeys(number for name in names for number in _NUMBER.findall(name))
    if len(numbers) <= _MOST_LAYERS:
        found |= {f"layer {number}": None for number in numbers}
    most = max((update.down.shape[0] for update in adapter_updates(model)), default=0)
    ranks = [f"{_RANKS}{2**power}" for power in range(max(most - 1, 0).bit_length())]
    return [*(part for part in found if not all(_belongs(n, part) for n in names)), *ranks]


def moves(model: nn.Module) -> list[str]:
    """Moves of updates: to other layers, and to siblings of the same shape (`v_proj>>k_proj`)."""
    found: dict[str, None] = {}
    for update in adapter_updates(model):
        path, _, own = update.layer.rpartition(".")
        shape = (update.up.shape[0], update.down.shape[1])
        for name, sibling in model.get_submodule(path).named_children():
            if name == own or not isinstance(sibling, nn.Linear):
                continue
            if tuple(sibling.weight.shape) == shape:
                found |= {f"{own}>>{name}": None, f"{own}<>{name}": None}
    has_layers = any(_NUMBER.search(each.layer) for each in adapter_updates(model))
    return [*(_LAYER_MOVES if has_layers else ()), *found]


@contextmanager
def adapter_part(model: nn.Module, value: Any) -> Iterator[None]:
    """A part of the adapter a number of times, `["v_proj", 0]`; see `parts`."""
    part, factor = str(value[0]), float(value[1])
    changes = {update.layer: (factor - 1) * update.matrix() for update in _updates_of(model, part)}
    if not changes:
        raise InapplicableError(f"the adapter has no part {part}")
    with with_changed_weights(model, changes):
        yield


@contextmanager
def adapter_moved(model: nn.Module, value: Any) -> Iterator[None]:
    """Updates act on other weights: in the `next` layer, or `v_proj>>k_proj`.

    In a circle, the last layer's update acts in the first. `q_proj<>v_proj` exchanges two.
    """
    own = {update.layer: update.matrix() for update in adapter_updates(model)}
    moved: dict[str, Tensor] = {}
    for name, matrix in own.items():
        target = _target(name, str(value), own)
        if target is not None:
            moved[target] = moved[target] + matrix if target in moved else matrix
    if all(moved.get(name) is matrix for name, matrix in own.items()):
        raise InapplicableError(f"no update of the adapter moves by {value}")
    zero = {name: 0 * matrix for name, matrix in {**own, **moved}.items()}
    changes = {
        name: moved.get(name, nothing) - own.get(name, nothing) for name, nothing in zero.items()
    }
    with with_changed_weights(model, changes):
        yield


def _updates_of(model: nn.Module, part: str) -> list[Update]:
    """The updates of a part; of ranks above a number what these add."""
    if not part.startswith(_RANKS):
        return [each for each in adapter_updates(model) if _belongs(each.layer, part)]
    kept = int(part.removeprefix(_RANKS))
    return [
        replace(each, down=each.down[kept:], up=each.up[:, kept:])
        for each in adapter_updates(model)
        if each.down.shape[0] > kept
    ]


def _belongs(name: str, part: str) -> bool:
    number = part.removeprefix("layer ")
    return number in _NUMBER.findall(name) if number != part else part in name.split(".")


def _target(name: str, move: str, own: Mapping[str, Tensor]) -> str | None:
    """The weight that an update acts on; None if there is none."""
    if move in _LAYER_MOVES:
        return _in_other_layer(name, move, own)
    for sign in (">>", "<>"):
        one, found, other = move.partition(sign)
        path, _, projection = name.rpartition(".")
        if found and projection == one:
            return f"{path}.{other}"
        if found and sign == "<>" and projection == other:
            return f"{path}.{one}"
    return name


def _in_other_layer(name: str, move: str, own: Mapping[str, Tensor]) -> str | None:
    number = _NUMBER.search(name)
    if number is None:
        return name
    alike = sorted(
        (int(found[0]), other)
        for other in own
        if (found := _NUMBER.search(other)) is not None
        and _NUMBER.sub("", other) == _NUMBER.sub("", name)
    )
    names = [other for _, other in alike]
    at = names.index(name) + (1 if move.startswith("next") else -1)
    if move.endswith("circle"):
        at %= len(names)
    target = names[at] if 0 <= at < len(names) else None
    return target if target is None or own[target].shape == own[name].shape else name
