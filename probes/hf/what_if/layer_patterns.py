"""Edits of what differs between layers: windows, rotation, and other kinds of layers.

A family gives layers different kinds, by lists in its configuration and by attributes of the
layers' modules. An engine can read such a pattern wrong: shifted by a layer, or one kind for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from contract import InapplicableError
from torch import nn

from hf.what_if.modules import layers

ALL = "*"
"""All patterns of a model at once."""
SHIFTS = {"next": 1, "previous": -1}
_PLAIN = bool | int | float | str | None


def patterns(model: Any) -> dict[str, list[Any]]:
    """Values by layer of each pattern: lists of the configuration and attributes of modules."""
    try:
        count = len(layers(model))
    except InapplicableError:
        return {}
    found = {name: list(values) for name, values in _lists(model, count)}
    for name in sorted(_attributes(model)):
        owned = [[vars(m)[name] for m in part] for part in _owners(model, name)]
        if all(values and len(set(values)) == 1 for values in owned):
            found[name] = [values[0] for values in owned]
    return {name: values for name, values in found.items() if 1 < len(set(values)) < count}


def _lists(model: Any, count: int) -> Iterator[tuple[str, Sequence[Any]]]:
    for name, values in vars(model.config.get_text_config()).items():
        is_list = isinstance(values, list | tuple) and len(values) == count
        if is_list and all(isinstance(value, _PLAIN) for value in values):
            yield name, values


def _attributes(model: nn.Module) -> set[str]:
    return {
        name
        for layer in layers(model)
        for module in layer.modules()
        if not type(module).__module__.startswith("torch.")
        for name, value in vars(module).items()
        if isinstance(value, _PLAIN) and not name.startswith("_")
    }


def _owners(model: nn.Module, name: str) -> list[list[nn.Module]]:
    """The modules of each layer that have an attribute."""
    return [[m for m in layer.modules() if name in vars(m)] for layer in layers(model)]


def changes(values: Sequence[Any]) -> list[Any]:
    """What a pattern may be read as: shifted, or as one layer's kind in all layers."""
    first = {value: number for number, value in reversed(list(enumerate(values)))}
    return [*SHIFTS, *sorted(first.values())]


@contextmanager
def layer_pattern(model: Any, value: Any) -> Iterator[None]:
    """Read a pattern otherwise: `[name, change]`, see `changes`; the name `*` stands for all."""
    name, change = value
    known = patterns(model)
    if name != ALL and name not in known:
        raise InapplicableError(f"the layers of this model have no different {name}")
    config = model.config.get_text_config()
    with ExitStack() as stack:
        for each in known if name == ALL else [name]:
            changed = _changed(change)(known[each])
            if isinstance(getattr(config, each, None), list | tuple):
                stack.enter_context(mock.patch.object(config, each, changed))
            for part, wanted in zip(_owners(model, each), changed, strict=True):
                for module in part:
                    stack.enter_context(mock.patch.object(module, each, wanted))
        yield


def _changed(change: Any) -> Callable[[list[Any]], list[Any]]:
    if change in SHIFTS:
        far = SHIFTS[change]
        return lambda values: [*values[far:], *values[:far]]
    return lambda values: [values[int(change)]] * len(values)
