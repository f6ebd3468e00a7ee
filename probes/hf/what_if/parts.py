"""Edits of a part of a model: a layer's block, a slice of its width, a slice of the vocabulary.

They imitate faults of tensor parallelism: the partial sum of a rank is not added, a rank loads the
shard of another one, or a rank's slice of the output head differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.hooks import until_end
from hf.what_if.modules import biases, blocks, hooked, layers, replaced, times

LAST = re.compile(
    r"(o_proj|out_proj|c_proj|down_proj|fc2|fc_out|w2|wo|out_lin|lin2|dense|dense_4h_to_h)$"
)
"""Names of the projections back to the hidden states. Tensor parallelism divides their inputs."""
_SLICES = (2, 4, 8)
_SWAP = "swap "
"""Before the number of a layer: both layers have each other's weights."""


def layer_blocks(model: nn.Module) -> list[str]:
    """Each block of each layer, such as `3.mlp`."""
    names = blocks(model)
    return [
        f"{number}.{name}"
        for number, layer in enumerate(layers(model))
        for name in names
        if _child(layer, name) is not None
    ]


def slices_of(model: Any, block: str) -> list[str]:
    """The slices that `lost_part` can leave out of a block: `1/2` is the first half."""
    try:
        widths = [_width(each) for each in _projections(model, block)]
    except InapplicableError:
        return []
    heads = getattr(model.config.get_text_config(), "num_attention_heads", 0)
    counts = dict.fromkeys((*_SLICES, *([heads] if isinstance(heads, int) and heads <= 32 else ())))
    return [
        f"{part}/{count}"
        for count in counts
        if count > 1 and all(width % count == 0 for width in widths)
        for part in range(1, count + 1)
    ]


def vocabulary_slices() -> list[str]:
    """The slices that `vocabulary_part` can shift."""
    return [f"{part}/{count}" for count in _SLICES for part in range(1, count + 1)]


@contextmanager
def layer_scale(model: nn.Module, value: Any) -> Iterator[None]:
    """A factor on the output of one block of one layer, `["3.mlp", factor]`."""
    block, factor = value
    with hooked(_chosen(model, str(block)), times(float(factor))):
        yield


@contextmanager
def lost_part(model: nn.Module, value: Any) -> Iterator[None]:
    """A slice of a block's inner width is left out, `["3.mlp", "1/2"]`; `mlp`: in all layers."""
    block, part = value
    number, count = map(int, str(part).split("/"))

    def without(module: nn.Module, inputs: Any) -> Any:
        size = _width(module) // count
        kept = inputs[0].clone()
        kept[..., (number - 1) * size : number * size] = 0
        return (kept, *inputs[1:])

    handles = [
        module.register_forward_pre_hook(without) for module in _projections(model, str(block))
    ]
    with until_end(handles):
        yield


def layer_sources(model: nn.Module) -> list[list[str]]:
    """For each layer, the layers whose weights it may have by mistake: `swap 1` is an exchange."""
    count = len(layers(model))
    return [
        [str(to), f"{how}{source}"]
        for to in range(count)
        for source in (to - 1, to + 1)
        if 0 <= source < count
        for how in ("", _SWAP)
    ]


@contextmanager
def layer_from(model: nn.Module, value: Any) -> Iterator[None]:
    """A layer computes with the weights of another one, `["3", "2"]`, or both are exchanged.

    Raises:
        InapplicableError: if the layers' weights have other shapes.
    """
    target, source = int(value[0]), int(str(value[1]).removeprefix(_SWAP))
    parameters = {
        number: dict(layers(model)[number].named_parameters()) for number in (target, source)
    }
    if _shapes(parameters[target]) != _shapes(parameters[source]):
        raise InapplicableError(f"the layers {target} and {source} have other shapes")
    original = {
        number: {name: weight.data for name, weight in of_layer.items()}
        for number, of_layer in parameters.items()
    }
    changed = {target: source}
    if str(value[1]).startswith(_SWAP):
        changed[source] = target
    try:
        for number, giver in changed.items():
            for name, weight in parameters[number].items():
                weight.data = original[giver][name]
        yield
    finally:
        for number, of_layer in original.items():
            for name, data in of_layer.items():
                parameters[number][name].data = data


def _shapes(parameters: Mapping[str, nn.Parameter]) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in parameters.items()}


def summed_biases(model: nn.Module) -> list[str]:
    """Names of the biases that are added after the sum over ranks, such as `down_proj`."""
    return sorted(name for name in biases(model) if LAST.search(name))


@contextmanager
def bias_scale(model: nn.Module, value: Any) -> Iterator[None]:
    """A factor on the biases of these modules, `["down_proj,o_proj", factor]`."""
    names, factor = value
    known = biases(model)
    chosen = [weight for name in str(names).split(",") for weight in known.get(name, ())]
    if not chosen:
        raise InapplicableError(f"this model has no bias in {names}")
    with replaced(chosen, lambda weight: weight * float(factor)):
        yield


@contextmanager
def vocabulary_part(model: Any, value: Any) -> Iterator[None]:
    """A number added to the logits of a slice of the vocabulary, `["1/2", number]`."""
    part, shift = value
    number, count = map(int, str(part).split("/"))

    def shifted(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        size = -(-output.shape[-1] // count)
        changed = output.clone()
        changed[..., (number - 1) * size : number * size] += float(shift)
        return changed

    with hooked([model.get_output_embeddings()], shifted):
        yield


def _chosen(model: nn.Module, block: str) -> list[nn.Module]:
    """The modules of `3.mlp`, or of `mlp` in all layers.

    Raises:
        InapplicableError: if the model has none.
    """
    place, _, name = block.rpartition(".")
    wanted = [layers(model)[int(place)]] if place else list(layers(model))
    found = [child for layer in wanted if (child := _child(layer, name)) is not None]
    if not found:
        raise InapplicableError(f"this model has no part {block}")
    return found


def _child(layer: nn.Module, name: str) -> nn.Module | None:
    """The block of a layer; shared experts are inside another block."""
    return next(
        (module for path, module in layer.named_modules() if path.rpartition(".")[2] == name), None
    )


def _projections(model: nn.Module, block: str) -> list[nn.Module]:
    """The last projections of the blocks.

    Raises:
        InapplicableError: if a block has none, or several, as a mixture of experts has.
    """
    found = []
    for module in _chosen(model, block):
        named = [child for path, child in module.named_modules() if LAST.search(path)]
        if len(named) != 1:
            raise InapplicableError(f"{block} has {len(named)} projections to the hidden states")
        found.append(named[0])
    return found


def _width(projection: nn.Module) -> int:
    """The number of inputs; GPT-2 stores its projections transposed."""
    inputs = getattr(projection, "in_features", None) or getattr(projection, "nx", None)
    if isinstance(inputs, int):
        return inputs
    raise InapplicableError(f"{type(projection).__name__} is no known projection")
