"""Low-rank adapters (LoRA) on a frozen model, with peft.

Only the adapters are trained. They are float32 whatever the dtype of the model, so that small
updates are not rounded away. They are part of the model, so the model with its adapters switched
off is its own reference.

Source: LoRA, arXiv 2106.09685.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from grpodoctor.errors import MissingExtraError, ModelError, name_some
from grpodoctor.trainer.config.sections import ModelConfig

if TYPE_CHECKING:
    from peft.tuners.lora import Linear
    from transformers import PreTrainedModel

_NAME = "default"
"""peft's default name of an adapter."""
ADAPTERS = "adapter_model.safetensors"
"""The adapters' file in a checkpoint."""
_PREFIX = "base_model.model."
"""Prefix of every name in the file, as peft writes and expects it."""


def add_adapters(model: PreTrainedModel, config: ModelConfig, seed: int) -> None:
    """Freeze a model and add adapters to its linear layers, in place.

    The new adapters do not change the model's output.

    The model is on the CPU, so that the initial weights are the same on every machine.

    Raises:
        MissingExtraError: if peft is not installed.
        ModelError: if the model has no such layers.
    """
    if find_spec("peft") is None:
        raise MissingExtraError("training low-rank adapters", "train")
    from peft import LoraConfig

    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,
        target_modules=_chosen(model, config.lora_targets),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.add_adapter(settings, _NAME)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def _chosen(model: PreTrainedModel, targets: str | tuple[str, ...]) -> list[str]:
    """The full names of the linear layers that `targets` selects, without the output head.

    peft applies `all-linear` and short names to the fused experts and routers of some
    mixture-of-experts models and not of others. Full names mean the same for all models.
    """
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # of transformers
    linear = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    ]
    if isinstance(targets, str):
        return linear
    kinds = sorted({name.rpartition(".")[2] for name in linear})
    for target in targets:
        if not any(f".{name}".endswith(f".{target}") for name in linear):
            raise ModelError(
                f"no linear layer is named {target[:60]!r}",
                where="model.lora_targets",
                remedy=f"use {name_some(kinds, 12)}, or all-linear",
            )
    suffixes = tuple(f".{target}" for target in targets)
    return [name for name in linear if f".{name}".endswith(suffixes)]


def adapter_layers(model: nn.Module) -> dict[str, Linear]:
    """The layers of a model that have adapters, by name; empty for a model without adapters."""
    if "peft" not in sys.modules:
        return {}
    from peft.tuners.lora import Linear

    return {name: layer for name, layer in model.named_modules() if isinstance(layer, Linear)}


@contextmanager
def adapters_off(model: PreTrainedModel) -> Iterator[None]:
    """Switch a model's adapters off while the body runs."""
    model.disable_adapters()
    try:
        yield
    finally:
        model.enable_adapters()


def merged_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of the model with its adapters merged into the weights."""
    merged = copy.deepcopy(model).requires_grad_(requires_grad=False)
    for name, layer in adapter_layers(merged).items():
        layer.merge()
        parent, _, child = name.rpartition(".")
        setattr(merged.get_submodule(parent), child, layer.get_base_layer())
    return merged


@torch.no_grad()
def merged_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All weights and buffers of a model, adapters merged in, under the names without adapters.

    Merged weights are computed one at a time; all others are the model's own tensors.
    """
    layers = adapter_layers(model)
    for name, tensor in model.state_dict().items():
        layer, separator, attribute = name.rpartition(".base_layer.")
        if separator and layer in layers:
            is_weight = attribute == "weight"
            merged = tensor + layers[layer].get_delta_weight(_NAME) if is_weight else tensor
            yield f"{layer}.{attribute}", merged.to(tensor.dtype)
        elif name.partition(".lora_")[0] not in layers:
            yield name, tensor


def save_adapters(model: PreTrainedModel, folder: Path) -> None:
    """Write the adapters in the format that peft's `from_pretrained` reads.

    Raises:
        OSError, SafetensorError: if they cannot be written.
    """
    from safetensors.torch import save_file

    tensors = {name: tensor.contiguous() for name, tensor in _adapter_weights(model).items()}
    save_file(tensors, folder / ADAPTERS)
    model.peft_config[_NAME].save_pretrained(str(folder))


def load_adapters(model: PreTrainedModel, folder: Path) -> None:
    """Inverse of `save_adapters`, for a model with adapters in the same layers.

    Raises:
        OSError, SafetensorError: if the file cannot be read.
        ValueError, RuntimeError: if its adapters do not fit the model.
    """
    from safetensors.torch import load_file

    saved, own = load_file(folder / ADAPTERS), _adapter_weights(model)
    if saved.keys() != own.keys():
        different = sorted(saved.keys() ^ own.keys())
        raise ValueError(f"its adapters are in different layers, such as {different[0]}")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != saved[name].shape:
                raise ValueError(f"its adapters have a different rank, such as {name}")
            tensor.copy_(saved[name])


def _adapter_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The adapters' tensors under the names that peft uses in a file."""
    from peft import get_peft_model_state_dict

    weights = get_peft_model_state_dict(
        model,
        state_dict=dict(model.named_parameters()),
        adapter_name=_NAME,
        save_embedding_layers=False,
    )
    return {_PREFIX + name: tensor for name, tensor in weights.items()}
