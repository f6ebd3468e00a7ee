"""LoRA adapters in the files of peft: not merged, merged, or merged twice by mistake.

Only plain LoRA on linear layers is supported. The arithmetic is W + s B A, with s = alpha / rank,
or alpha / sqrt(rank) with rank-stabilized scaling, both per layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract import InapplicableError, RefusalError
from torch import Tensor, nn

from hf.adapter_config import WEIGHTS, read_adapter_config, unreadable

USES = ("unmerged", "merged", "merged_twice")
_PREFIXES = ("base_model.model.", "base_model.")
_ATTRIBUTE = "grpodoctor_adapter"
_TIMES = "grpodoctor_adapter_times"


@dataclass(frozen=True)
class Update:
    """The two factors of one layer's update."""

    layer: str
    down: Tensor
    """(rank, inputs)."""
    up: Tensor
    """(outputs, rank)."""
    scale: float

    def matrix(self) -> Tensor:
        """The update of the weight, (outputs, inputs), in float32."""
        product: Tensor = self.scale * (self.up.float() @ self.down.float())
        return product


def apply_adapter(model: nn.Module, folder: str, use: str) -> None:
    """Apply an adapter to a loaded model.

    Args:
        model: the base model.
        folder: directory with the adapter's files.
        use: one of `USES`.

    Raises:
        RefusalError: if the adapter is damaged, of another kind, or does not fit the model.
    """
    updates = read_adapter(Path(folder))
    layers = {update.layer: _layer(model, update) for update in updates}
    setattr(model, _ATTRIBUTE, updates)
    times = 2 if use == "merged_twice" else 1
    setattr(model, _TIMES, times)
    for update in updates:
        layer = layers[update.layer]
        if use == "unmerged":
            layer.register_forward_hook(_added(update))
            continue
        for _ in range(times):
            layer.weight.add_(update.matrix().to(layer.weight))


def _added(update: Update) -> Any:
    def hook(_module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        low = inputs[0] @ update.down.to(inputs[0]).T
        return output + update.scale * (low @ update.up.to(inputs[0]).T).to(output)

    return hook


def has_adapter(model: nn.Module) -> bool:
    """Whether an adapter was applied."""
    return hasattr(model, _ATTRIBUTE)


def times_applied(model: nn.Module) -> int:
    """How many times the adapter was applied: 2 if it was merged twice."""
    times: int = getattr(model, _TIMES, 0)
    return times


@contextmanager
def adapter_times(model: nn.Module, value: Any) -> Iterator[None]:
    """Apply the adapter a number of times in all: 0 is the base model, 2 is merged twice."""
    if not has_adapter(model):
        raise InapplicableError("this model has no adapter")
    further = float(value) - times_applied(model)
    more = {each.layer: further * each.matrix() for each in adapter_updates(model)}
    with with_changed_weights(model, more):
        yield


def adapter_updates(model: nn.Module) -> list[Update]:
    """The updates of the adapter that was applied; none without one."""
    updates: list[Update] = getattr(model, _ATTRIBUTE, [])
    return updates


@contextmanager
def with_changed_weights(model: nn.Module, changes: Mapping[str, Tensor]) -> Iterator[None]:
    """Add to the weights of linear layers, by the layers' names."""
    chosen: list[Any] = [model.get_submodule(name) for name in changes]
    before = [(layer, layer.weight) for layer in chosen]
    try:
        for (layer, weight), more in zip(before, changes.values(), strict=True):
            changed = (weight.float() + more).to(weight.dtype)
            layer.weight = nn.Parameter(changed, requires_grad=False)
        yield
    finally:
        for layer, weight in before:
            layer.weight = weight


def read_adapter(folder: Path) -> list[Update]:
    """The updates of an adapter.

    Raises:
        RefusalError: if it is missing, damaged or not plain LoRA.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config = read_adapter_config(folder)
    try:
        tensors: Mapping[str, Tensor] = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise unreadable(folder, error) from error
    updates = [
        Update(layer, down, tensors[up], config.scale_of(layer))
        for name, down in sorted(tensors.items())
        if "lora_A" in name and (up := name.replace("lora_A", "lora_B")) in tensors
        for layer in (_plain_name(name),)
    ]
    if not updates or 2 * len(updates) != len(tensors):
        raise RefusalError(
            f"the adapter {folder} has tensors other than pairs of lora_A and lora_B",
            "merge it with peft, and name the merged model",
        )
    return updates


def _plain_name(name: str) -> str:
    layer = name.partition(".lora_A")[0]
    for prefix in _PREFIXES:
        if layer.startswith(prefix):
            return layer.removeprefix(prefix)
    return layer


def _layer(model: nn.Module, update: Update) -> Any:
    try:
        layer = model.get_submodule(update.layer)
    except AttributeError:
        raise RefusalError(
            f"the adapter changes {update.layer}, which the model lacks",
            "use the adapter's base model",
        ) from None
    shape = (update.up.shape[0], update.down.shape[1])
    if not isinstance(layer, nn.Linear) or tuple(layer.weight.shape) != shape:
        raise RefusalError(
            f"the adapter does not fit {update.layer}: {shape[0]} x {shape[1]}",
            "use the adapter's base model",
        )
    return layer
