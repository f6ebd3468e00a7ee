"""How far an optimizer step moved the weights, and whether it moved them at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from grpodoctor.errors import ModelError
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading

_PARCEL = 1 << 20
"""Weights that are compared at once: a small model has many tensors and little in them, so that a
call for each would take longer than the sums. A larger tensor is a parcel by itself."""


class _Parcel(NamedTuple):
    """Some weights in one vector."""

    names: list[str]
    sizes: list[int]
    flat: Tensor


@dataclass(frozen=True, slots=True)
class WeightSnapshot:
    """The trainable weights of a model at one moment, in their own dtype and on their own device.

    It takes as much memory as the weights do, so it is for whoever asked for it. Of a sharded
    model each rank keeps, and judges, its own shards.
    """

    parcels: list[_Parcel]

    @classmethod
    def take(cls, model: nn.Module) -> Self:
        """Copy the trainable weights; tied ones once."""
        return cls(_parcels(_trainable(model)))

    @property
    def weights(self) -> dict[str, Tensor]:
        """The copies by name, flat."""
        return {
            name: weight
            for parcel in self.parcels
            for name, weight in zip(
                parcel.names, torch.split(parcel.flat, parcel.sizes), strict=True
            )
        }

    def change(self, model: nn.Module) -> dict[str, Reading]:
        """`optimizer/update_norm_ratio` and `optimizer/changed_weight_rate` since the snapshot.

        Raises:
            ModelError: if the model has other trainable weights now than it had then.
        """
        now = dict(_trainable(model))
        before = [name for parcel in self.parcels for name in parcel.names]
        if now.keys() != set(before):
            names = sorted(now.keys() ^ set(before))
            raise ModelError(
                "the model's trainable weights are not those of the snapshot",
                where=", ".join(names[:3]),
                remedy="take a new snapshot",
            )
        moved, norms, changed = [], [], []
        for parcel in self.parcels:
            after = torch.cat([now[name].flatten() for name in parcel.names])
            difference = after.float() - parcel.flat.float()
            moved.append(difference.norm())
            norms.append(parcel.flat.float().norm())
            changed.append(difference.count_nonzero())
        # Fetched after the last is under way: a device is waited for once, not at every parcel.
        size = math.hypot(*map(float, norms))
        return {
            "optimizer/update_norm_ratio": Mean.of([math.hypot(*map(float, moved)) / size])
            if size
            else NotApplicable("every weight was zero before"),
            "optimizer/changed_weight_rate": Rate(
                sum(map(int, changed)), sum(parcel.flat.numel() for parcel in self.parcels)
            ),
        }


def _parcels(weights: Sequence[tuple[str, Tensor]]) -> list[_Parcel]:
    """Copies of weights, small neighbours of one kind in one parcel."""
    groups: list[list[tuple[str, Tensor]]] = []
    room, kind = 0, None
    for name, weight in weights:
        if not groups or (weight.dtype, weight.device) != kind or weight.numel() > room:
            groups.append([])
            room, kind = _PARCEL, (weight.dtype, weight.device)
        groups[-1].append((name, weight))
        room -= weight.numel()
    return [
        _Parcel(
            [name for name, _ in group],
            [weight.numel() for _, weight in group],
            torch.cat([weight.flatten() for _, weight in group]),
        )
        for group in groups
    ]


def _trainable(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Trainable weights by name, without gradient history; of a sharded one, this rank's part."""
    return [
        (name, _local(weight.detach()))
        for name, weight in model.named_parameters()
        if weight.requires_grad
    ]


def _local(weight: Tensor) -> Tensor:
    """This rank's part of a sharded weight; any other as it is."""
    if type(weight) is Tensor:
        return weight
    from torch.distributed.tensor import DTensor

    return weight.to_local() if isinstance(weight, DTensor) else weight
