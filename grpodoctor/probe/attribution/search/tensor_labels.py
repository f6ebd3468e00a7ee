"""Short names of sets of tensors, such as `layer 1 attention`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpodoctor.probe.attribution.search.tensor_groups import (
    Names,
    Place,
    grouped,
    is_part,
    place_of,
    tensor_of,
)
from grpodoctor.probe.attribution.tensors import kind_of, layer_of


def labels_of(taken: Names, every: Names) -> tuple[str, ...]:
    """Short names of a set of tensors, such as `layer 1 attention`, sorted by layer.

    Args:
        taken: the tensors to name.
        every: all tensors of the model.
    """
    shards = _shards_in(taken)
    for members in shards.values():
        taken -= members
    wholes = [
        f"{words} of {label}"
        for words, members in shards.items()
        for label in labels_of(frozenset(map(tensor_of, members)), every)
    ]
    return (*_whole_labels(taken, every), *wholes)


def _shards_in(taken: Names) -> dict[str, Names]:
    """Parts of several tensors that one rank holds, by words such as `part 2 of 4`."""
    parts = grouped(filter(is_part, taken), lambda name: name.partition("[")[2].rstrip("]"))
    return {
        "part {} of {}".format(*part.removeprefix("rank ").split("/")): members
        for part, members in parts.items()
        if len(members) > 1
    }


def _whole_labels(taken: Names, every: Names) -> tuple[str, ...]:
    """Labels of tensors, and of parts by themselves."""
    kinds, whole = grouped(every, kind_of), grouped(every, place_of)
    labels: list[tuple[int, str]] = []
    by_layer = grouped(every, layer_of)
    for layer, members in grouped(taken, layer_of).items():
        if layer is not None and members == by_layer[layer]:
            labels.append((layer, f"layer {layer} "))
            taken -= members
    for kind, members in grouped(taken, kind_of).items():
        if members == kinds[kind]:
            labels.append((-1, kind))
            continue
        layers = {layer_of(name) for name in kinds[kind]}
        for place, part in grouped(members, place_of).items():
            is_outside = place[1] is None and len(layers) > 1  # such as the last norm
            labels += _labels(place, part, is_whole=part == whole[place] and not is_outside)
    return _merged(labels)


def _labels(place: Place, names: Names, *, is_whole: bool) -> list[tuple[int, str]]:
    """The order and the label of some tensors of a kind and a layer."""
    kind, layer = place
    where, order = ("", -1) if layer is None else (f"layer {layer} ", layer)
    if is_whole:
        return [(order, f"{where}{kind}")]
    return [(order, f"{where}{_tail(name)}") for name in sorted(names)]


def _tail(name: str) -> str:
    """The end of a tensor's name after its layer: `self_attn.q_proj.weight`."""
    return re.sub(r"^(?:.*\.(?:layers|h|blocks)\.\d+|model|transformer)\.", "", name)


def _merged(labels: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    """Labels in order, with the layers of a kind in one label: `layers 1 to 3 MLP`."""
    layers: dict[str, list[int]] = {}
    for order, label in labels:
        plain = label.removeprefix(f"layer {order} ") if order >= 0 else label
        layers.setdefault(plain, []).append(order)
    ordered = sorted(layers.items(), key=lambda item: (min(item[1]), item[0]))
    return tuple(_label(name, sorted(numbers)) for name, numbers in ordered)


def _label(name: str, layers: Sequence[int]) -> str:
    if layers[0] < 0:
        return name
    if len(layers) == 1:
        return f"layer {layers[0]} {name}".rstrip()
    if list(layers) == list(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]} to {layers[-1]} {name}".rstrip()
    return f"layers {', '.join(map(str, layers))} {name}".rstrip()
