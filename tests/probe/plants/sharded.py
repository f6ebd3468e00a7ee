"""Faults of parts of a model, as a wrong division among ranks leaves them.

Written with the weights alone, without the code of attribution's edits. Families, places and the
names that count were fixed before the first run of the edits that layers and slices have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import add_faults

Names = tuple[str, ...]
_TO_HIDDEN = {
    "mlp": ("down_proj", "dense_4h_to_h", "fc2", "c_proj", "w2"),
    "attention": ("o_proj", "dense", "out_proj", "c_proj"),
}


def _layers(engine: Any) -> list[nn.Module]:
    lists = [each for each in engine._model.modules() if isinstance(each, nn.ModuleList)]
    return list(max(lists, key=len))


def _projection(layer: nn.Module, part: str) -> Any:
    for path, module in layer.named_modules():
        owner, _, name = path.rpartition(".")
        is_mlp = "mlp" in owner or "feed" in owner
        if name in _TO_HIDDEN[part] and is_mlp == (part == "mlp"):
            return module
    raise AssertionError(f"no projection of {part}")


def _slice_lost(part: str) -> Callable[[Any, str], None]:
    """`layer,number,count`: a slice of the summed inputs is zero; `*` for all layers."""

    def fault(engine: Any, value: str) -> None:
        place, number, count = value.split(",")
        layers = _layers(engine)
        with torch.no_grad():
            for layer in layers if place == "*" else [layers[int(place)]]:
                weight: Tensor = _projection(layer, part).weight
                size = weight.shape[1] // int(count)
                weight[:, int(number) * size : (int(number) + 1) * size] = 0

    return fault


def _vocabulary_shift(engine: Any, value: str) -> None:
    number, count, shift = value.split(",")
    head = engine._model.get_output_embeddings()

    def shifted(_module: Any, _inputs: Any, logits: Tensor) -> Tensor:
        ids = torch.arange(logits.shape[-1])
        return logits + float(shift) * (ids * int(count) // logits.shape[-1] == int(number))

    head.register_forward_hook(shifted)


def _bias_per_rank(engine: Any, value: str) -> None:
    with torch.no_grad():
        for layer in _layers(engine):
            for part in _TO_HIDDEN:
                _projection(layer, part).bias.mul_(float(value))


def _layer_from(engine: Any, value: str) -> None:
    """`to,from`: a layer with the weights of another one."""
    to, source = map(int, value.split(","))
    layers = _layers(engine)
    layers[to].load_state_dict(layers[source].state_dict())


def _layers_swapped(engine: Any, value: str) -> None:
    one, other = (_layers(engine)[int(number)] for number in value.split(","))
    kept = {name: each.clone() for name, each in one.state_dict().items()}
    one.load_state_dict(other.state_dict())
    other.load_state_dict(kept)


def _block_scaled(engine: Any, value: str) -> None:
    place, part, factor = value.split(",")
    projection = _projection(_layers(engine)[int(place)], part)
    with torch.no_grad():
        projection.weight.mul_(float(factor))
        if projection.bias is not None:
            projection.bias.mul_(float(factor))


def _uniform(engine: Any, value: str) -> None:
    share = float(value)

    def mixed(_module: Any, _inputs: Any, logits: Tensor) -> Tensor:
        return ((1 - share) * logits.softmax(-1) + share / logits.shape[-1]).log()

    engine._model.get_output_embeddings().register_forward_hook(mixed)


add_faults(
    {
        "attention_slice_lost": _slice_lost("attention"),
        "bias_per_rank": _bias_per_rank,
        "block_scaled": _block_scaled,
        "layer_from": _layer_from,
        "layers_swapped": _layers_swapped,
        "mlp_slice_lost": _slice_lost("mlp"),
        "uniform": _uniform,
        "vocabulary_shift": _vocabulary_shift,
    }
)
_LOST = ("lost-part",)
_MOVED = ("layer-order",)
SINGLES: tuple[tuple[str, str, Names], ...] = (
    ("qwen3", "mlp_slice_lost:1,1,2", _LOST),
    ("mistral", "attention_slice_lost:2,0,4", _LOST),
    ("gpt_neox", "attention_slice_lost:*,2,4", _LOST),
    ("arcee", "mlp_slice_lost:*,0,2", _LOST),
    ("phi", "bias_per_rank:2", ("bias-scale",)),
    ("starcoder2", "bias_per_rank:4", ("bias-scale",)),
    ("qwen2", "vocabulary_shift:2,4,0.4", ("vocabulary-part",)),
    ("helium", "vocabulary_shift:0,2,-0.7", ("vocabulary-part",)),
    ("llama", "layers_swapped:0,1", _MOVED),
    ("stablelm", "layer_from:2,1", _MOVED),
    ("mistral", "layer_from:0,1", _MOVED),
    ("seed_oss", "block_scaled:0,mlp,0.7", ("residual-scale",)),
    ("qwen3", "block_scaled:1,attention,1.4", ("residual-scale",)),
    ("mistral", "uniform:0.02", ("uniform-share",)),
)
"""Family, fault, accepted names."""
DOUBLES: tuple[tuple[str, str, tuple[Names, ...], bool], ...] = (
    ("qwen2", "mlp_slice_lost:0,1,2+hidden_temperature:0.9", (_LOST, ("temperature",)), False),
    ("llama", "vocabulary_shift:0,2,0.6+rope_theta:500",
     (("vocabulary-part",), ("rope-base",)), False),
    ("mistral", "attention_slice_lost:1,3,4", (_LOST, ("partial-sync",)), True),
)  # fmt: skip
"""Family, faults, accepted names, and whether a layer is stale, too."""
