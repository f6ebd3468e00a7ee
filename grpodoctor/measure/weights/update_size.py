"""Norm of an optimizer step's weight change, and the share of changed weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from grpodoctor.errors import ModelError
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading

_CHUNK = 1 << 20
"""Weights per chunk. A small model has many small tensors; one call per tensor would take longer
than the sums. A larger tensor is its own chunk."""


class _Chunk(NamedTuple):
    """Several weights in one vector."""

    names: list[str]
    sizes: list[int]
    flat: Tensor


@dataclass(frozen=True, slots=True)
class WeightSnapshot:
    """A copy of a model's trainable weights, in their dtype and on their device.

    It needs as much memory as the weights, so it is optional. For a sharded model, each rank copies
    and compares its own shards.
    """

    chunks: list[_Chunk]

    @classmethod
    def take(cls, model: nn.Module) -> Self:
        """Copy the trainable weights; tied weights are copied once."""
        return cls(_chunks(_trainable(model)))

    @property
    def weights(self) -> dict[str, Tensor]:
        """The copies by name, flattened."""
        return {
            name: weight
            for chunk in self.chunks
            for name, weight in zip(chunk.names, torch.split(chunk.flat, chunk.sizes), strict=True)
        }

    def change(self, model: nn.Module) -> dict[str, Reading]:
        """`optimizer/update_norm_ratio` and `optimizer/changed_weight_rate` since the snapshot.

        Raises:
            ModelError: if the model's trainable weights are not those of the snapshot.
        """
        now = dict(_trainable(model))
        before = [name for chunk in self.chunks for name in chunk.names]
        if now.keys() != set(before):
            names = sorted(now.keys() ^ set(before))
            raise ModelError(
                "the model's trainable weights are not those of the snapshot",
                where=", ".join(names[:3]),
                remedy="take a new snapshot",
            )
        moved, norms, changed = [], [], []
        for chunk in self.chunks:
            after = torch.cat([now[name].flatten() for name in chunk.names])
            difference = after.float() - chunk.flat.float()
            moved.append(difference.norm())
            norms.append(chunk.flat.float().norm())
            changed.append(difference.count_nonzero())
        # Read after the last chunk was queued, so that the device is synchronized once.
        size = math.hypot(*map(float, norms))
        return {
            "optimizer/update_norm_ratio": Mean.of([math.hypot(*map(float, moved)) / size])
            if size
            else NotApplicable("all weights were zero before the update"),
            "optimizer/changed_weight_rate": Rate(
                sum(map(int, changed)), sum(chunk.flat.numel() for chunk in self.chunks)
            ),
        }


def _chunks(weights: Sequence[tuple[str, Tensor]]) -> list[_Chunk]:
    """Copies of weights; small neighbors with the same dtype and device share a chunk."""
    groups: list[list[tuple[str, Tensor]]] = []
    room, kind = 0, None
    for name, weight in weights:
        if not groups or (weight.dtype, weight.device) != kind or weight.numel() > room:
            groups.append([])
            room, kind = _CHUNK, (weight.dtype, weight.device)
        groups[-1].append((name, weight))
        room -= weight.numel()
    return [
        _Chunk(
            [name for name, _ in group],
            [weight.numel() for _, weight in group],
            torch.cat([weight.flatten() for _, weight in group]),
        )
        for group in groups
    ]


def _trainable(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Trainable weights by name, detached; for sharded weights, this rank's part."""
    return [
        (name, _local(weight.detach()))
        for name, weight in model.named_parameters()
        if weight.requires_grad
    ]


def _local(weight: Tensor) -> Tensor:
    """This rank's part of a sharded weight; other weights unchanged."""
    if type(weight) is Tensor:
        return weight
    from torch.distributed.tensor import DTensor

    return weight.to_local() if isinstance(weight, DTensor) else weight
