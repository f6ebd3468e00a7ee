"""The faults of `third_draw` in weights and adapters that no earlier set has.

They are wrong formats, wrong orders, parts that a sync misses, and what an adapter adds. Each takes
the loaded engine and the fault's value, like those of `computing.py`. The author had not read
attribution's code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import _layers, add_faults
from tests.probe.plants.issue_bugs import _modules_with
from tests.probe.plants.natural_draw import _old_weights
from tests.probe.plants.second_draw_faults import FP8_MOST, _adapted, _adapter_change

_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _weights(engine: Any, size: int) -> Iterator[Tensor]:
    """The matrices of the layers but routers, whose inputs can be divided into groups."""
    found = False
    for layer in _layers(engine):
        for name, weight in layer.named_parameters():
            is_router = name.endswith(("gate.weight", "router.weight"))
            if weight.ndim > 1 and weight.shape[-1] % size == 0 and not is_router:
                found = True
                yield weight
    assert found


def _mxfp8(engine: Any, size: str) -> None:
    """Weights in E4M3 with a power of two as the scale of each group of inputs."""
    with torch.no_grad():
        for weight in _weights(engine, int(size)):
            groups = weight.unflatten(-1, (-1, int(size)))
            largest = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30)
            scale = torch.exp2(torch.floor(torch.log2(largest)) - 8)
            codes = (groups / scale).clamp(-FP8_MOST, FP8_MOST).to(torch.float8_e4m3fn)
            weight.copy_((codes.to(weight) * scale).flatten(-2))


def _nvfp4(engine: Any, size: str) -> None:
    """Weights in E2M1 with a scale in E4M3 for each group, below a scale of the tensor."""
    with torch.no_grad():
        for weight in _weights(engine, int(size)):
            groups = weight.unflatten(-1, (-1, int(size)))
            whole = weight.abs().max() / (6 * FP8_MOST)
            scale = groups.abs().amax(-1, keepdim=True) / 6 / whole
            scale = scale.to(torch.float8_e4m3fn).to(weight) * whole
            nearest = ((groups / scale.clamp(min=1e-30)).abs()[..., None] - _E2M1).abs().argmin(-1)
            weight.copy_((_E2M1[nearest] * groups.sign() * scale).flatten(-2))


def _groups_in_order(engine: Any, size: str) -> None:
    """Four-bit codes were grouped by activation; the kernel takes the scale of the place."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for weight in _weights(engine, int(size)):
            order = torch.randperm(weight.shape[-1], generator=generator)
            groups = weight[..., order].unflatten(-1, (-1, int(size)))
            scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 7
            codes = (groups / scale).round().flatten(-2)[..., order.argsort()]
            weight.copy_(codes * scale.squeeze(-1).repeat_interleave(int(size), -1))


def _averaged_with(engine: Any, value: str) -> None:
    """`SHARE,FOLDER`: the sync mixes the new weights with the old ones, as for a reference."""
    share, path = value.split(",", 1)
    old = _old_weights(path)
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            weight.lerp_(old[name], float(share))


def _expert_rank_from(engine: Any, path: str) -> None:
    """The second rank of experts keeps its old weights."""
    old, found = _old_weights(path), False
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            if ("experts" in name and weight.ndim == 3) or name.endswith("_linear.weight"):
                found = True
                weight[len(weight) // 2 :] = old[name][len(weight) // 2 :]
    assert found


def _rank_from(engine: Any, path: str) -> None:
    """The second of two tensor-parallel ranks keeps its old part of each projection."""
    old, found = _old_weights(path), False
    with torch.no_grad():
        for name, weight in engine._model.named_parameters():
            kind = name.removesuffix(".weight").rpartition(".")[2]
            if kind in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"):
                weight[len(weight) // 2 :] = old[name][len(weight) // 2 :]
                found = True
            elif kind in ("o_proj", "down_proj"):
                half = weight.shape[1] // 2
                weight[:, half:] = old[name][:, half:]
    assert found


def _exchanged(engine: Any, pairs: str) -> None:
    """`ONE,OTHER`: two tensors of each layer have each other's weights."""
    one, other = pairs.split(",")
    found = False
    with torch.no_grad():
        for owner in engine._model.modules():
            if hasattr(owner, one) and hasattr(owner, other):
                first, second = getattr(owner, one).weight, getattr(owner, other).weight
                kept = first.clone()
                first.copy_(second)
                second.copy_(kept)
                found = True
    assert found


def _sinks_of_first_rank(engine: Any, _: str) -> None:
    """Heads of the second rank have the sinks of the first one."""
    with torch.no_grad():
        for attention in _modules_with(engine, "sinks"):
            if attention.sinks is not None:
                half = len(attention.sinks) // 2
                attention.sinks[half:] = attention.sinks[:half].clone()


def _rows_permuted(engine: Any, _: str) -> None:
    """Queries and keys keep the order of rows of the original weights, with rotated pairs."""
    config = engine._model.config
    with torch.no_grad():
        for layer in _modules_with(engine, "q_proj"):
            for module in (layer.q_proj, layer.k_proj):
                size = getattr(layer, "head_dim", config.hidden_size // config.num_attention_heads)
                rows = module.weight.unflatten(0, (-1, 2, size // 2))
                module.weight.copy_(rows.transpose(1, 2).flatten(0, 2).clone())


def _rows_moved(engine: Any, first: str) -> None:
    """Embeddings of added tokens are one row too late."""
    with torch.no_grad():
        weight = engine._model.get_input_embeddings().weight
        weight[int(first) :] = weight[int(first) :].roll(1, 0).clone()


def _experts_in_turn(engine: Any, _: str) -> None:
    """Ranks hold experts in turn, and are read as if they held consecutive ones."""
    found = False
    with torch.no_grad():
        for experts in engine._routers.expert_modules:
            for weight in experts.parameters():
                if weight.ndim > 1:
                    weight.copy_(torch.cat([weight[::2], weight[1::2]]).clone())
                    found = True
    assert found


def _adapter_dropout(engine: Any, rate: str) -> None:
    """The adapter is in training mode, with dropout of what it adds."""
    _adapter_change(engine, lambda _x, more, _: nn.functional.dropout(more, float(rate), True))


def _adapter_layer_lost(engine: Any, number: str) -> None:
    """A layer's updates are dropped, as by another prefix of names."""
    lost = [m for name, m in _adapted(engine) if f"layers.{number}." in name]
    assert lost
    for module in lost:
        module._forward_hooks.clear()


def _adapter_old(engine: Any, relative: str) -> None:
    """The adapter is that of an earlier step: its updates differ by a matrix of their size."""
    generator = torch.Generator().manual_seed(9)
    matrices: dict[int, Tensor] = {}

    def change(x: Tensor, more: Tensor, number: int) -> Tensor:
        if number not in matrices:
            size = (4, x.shape[-1]), (more.shape[-1], 4)
            down, up = (torch.randn(each, generator=generator) for each in size)
            step = float(relative) * 0.3 * up @ down / x.shape[-1] ** 0.5
            matrices[number] = step
        return more + x @ matrices[number].T

    _adapter_change(engine, change)


def _adapter_rank_cut(engine: Any, rank: str) -> None:
    """The engine keeps the first rows of each adapter's factors, by its own limit of ranks."""
    for update in engine._model.grpodoctor_adapter:
        update.down[int(rank) :] = 0


add_faults(
    {
        "adapter_dropout": _adapter_dropout,
        "adapter_layer_lost": _adapter_layer_lost,
        "adapter_old": _adapter_old,
        "adapter_rank_cut": _adapter_rank_cut,
        "averaged_with": _averaged_with,
        "exchanged": _exchanged,
        "expert_rank_from": _expert_rank_from,
        "experts_in_turn": _experts_in_turn,
        "groups_in_order": _groups_in_order,
        "mxfp8": _mxfp8,
        "nvfp4": _nvfp4,
        "rank_from": _rank_from,
        "rows_moved": _rows_moved,
        "rows_permuted": _rows_permuted,
        "sinks_of_first_rank": _sinks_of_first_rank,
    }
)
