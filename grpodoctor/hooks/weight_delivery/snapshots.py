"""Copies of a model's trained weights, and the model with these weights for a moment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

BUDGET = 128 * 2**20
"""Bytes of a snapshot in host memory: the adapters of a model of 7 billion weights, or a matrix
from every few layers."""
_LAYER = re.compile(r"\.(\d+)\.")
_RANGES = 8
"""Ranges of layers that are compared; each costs a forward pass when weights are missing."""
OTHERS = "other parameters"

Weights = Mapping[str, "Tensor"]


class TrainedWeights:
    """The weights of a model that a training changes, or a part of them if they are large.

    A part is enough to see that nothing arrives. It consists of the smallest matrix of each layer;
    every second layer is left out until the budget suffices.

    Args:
        model: the learner; its parameters are whole, not sharded over ranks.
        budget: bytes of a snapshot.
    """

    def __init__(self, model: nn.Module, budget: int = BUDGET) -> None:
        trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
        chosen = _chosen(trained, budget)
        self.is_complete = len(chosen) == len(trained)
        self._model = model
        self._slots: dict[str, list[tuple[nn.Module, str]]] = {name: [] for name in chosen}
        names = {id(trained[name]): name for name in chosen}
        for module in model.modules():
            for leaf, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                if id(parameter) in names:
                    self._slots[names[id(parameter)]].append((module, leaf))

    @property
    def names(self) -> list[str]:
        """The names of the parameters in a snapshot."""
        return list(self._slots)

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of the current weights in host memory."""
        return {
            name: self._current(name).detach().to(device="cpu", copy=True) for name in self._slots
        }

    @contextmanager
    def replaced(self, weights: Weights) -> Iterator[None]:
        """The model computes with other weights inside the context, and in evaluation mode.

        The parameters themselves are not written to: the modules refer to other tensors for this
        time. Dropout is off, so no random number is drawn.
        """
        kept: list[tuple[nn.Module, str, Any]] = []
        modes = [(module, module.training) for module in self._model.modules()]
        try:
            for module, _ in modes:
                module.training = False
            for name, value in weights.items():
                for module, leaf in self._slots[name]:
                    parameter = getattr(module, leaf)
                    kept.append((module, leaf, parameter))
                    setattr(module, leaf, _like(value, parameter))
            yield
        finally:
            for module, leaf, parameter in reversed(kept):
                setattr(module, leaf, parameter)
            for module, mode in modes:
                module.training = mode

    def parts(self) -> list[dict[str, list[str]]]:
        """The parameters by kind of module, and by range of layers."""
        kinds: dict[str, list[str]] = {}
        layers: dict[int, list[str]] = {}
        others: list[str] = []
        for name in self._slots:
            kinds.setdefault(_kind(name), []).append(name)
            number = _LAYER.search(name)
            (others if number is None else layers.setdefault(int(number[1]), [])).append(name)
        return [kinds, {**_ranges(layers), **({OTHERS: others} if others else {})}]

    def _current(self, name: str) -> Tensor:
        module, leaf = self._slots[name][0]
        parameter: Tensor = getattr(module, leaf)
        return parameter


def _like(value: Tensor, parameter: Any) -> Any:
    from torch import nn

    return nn.Parameter(value.to(parameter.device, parameter.dtype), requires_grad=False)


def _chosen(trained: Mapping[str, Tensor], budget: int) -> list[str]:
    sizes = {name: each.numel() * each.element_size() for name, each in trained.items()}
    if sum(sizes.values()) <= budget:
        return list(trained)
    smallest: dict[str, str] = {}
    for name, each in trained.items():
        number = _LAYER.search(name)
        if each.ndim < 2 or number is None:
            continue
        best = smallest.get(number[1])
        if best is None or sizes[name] < sizes[best]:
            smallest[number[1]] = name
    chosen = list(smallest.values())
    while chosen and sum(sizes[name] for name in chosen) > budget:
        chosen = chosen[1::2]
    return chosen


def _kind(name: str) -> str:
    """The module's own name, such as `q_proj`, without those of its layer and its adapter."""
    parts = name.split(".")
    adapter = next((place for place, part in enumerate(parts) if part.startswith("lora_")), None)
    return parts[adapter - 1 if adapter else max(len(parts) - 2, 0)]


def _ranges(layers: Mapping[int, list[str]]) -> dict[str, list[str]]:
    numbers = sorted(layers)
    size = max(1, -(-len(numbers) // _RANGES))
    ranges: dict[str, list[str]] = {}
    for start in range(0, len(numbers), size):
        chosen = numbers[start : start + size]
        label = f"layer {chosen[0]}" if size == 1 else f"layers {chosen[0]} to {chosen[-1]}"
        ranges[label] = [name for number in chosen for name in layers[number]]
    return ranges
