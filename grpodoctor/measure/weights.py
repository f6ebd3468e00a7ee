"""How far an optimiser step moved the weights, and whether it moved them at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from grpodoctor.errors import ModelError
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading


@dataclass(frozen=True, slots=True)
class WeightSnapshot:
    """The trainable weights of a model at one moment, in their own dtype and on their own device.

    It takes as much memory as the weights do, so it is for whoever asked for it. Of a sharded
    model each rank keeps, and judges, its own shards.
    """

    weights: dict[str, Tensor]

    @classmethod
    def take(cls, model: nn.Module) -> Self:
        """Copy the trainable weights; tied ones once."""
        return cls({name: weight.clone() for name, weight in _trainable(model)})

    def change(self, model: nn.Module) -> dict[str, Reading]:
        """`optimiser/update_norm_ratio` and `optimiser/changed_weight_rate` since the snapshot.

        Raises:
            ModelError: if the model has other trainable weights now than it had then.
        """
        now = dict(_trainable(model))
        if now.keys() != self.weights.keys():
            names = sorted(now.keys() ^ self.weights.keys())
            raise ModelError(
                "the model's trainable weights are not those of the snapshot",
                where=", ".join(names[:3]),
                remedy="take a new snapshot",
            )
        moved, sizes, changed = [], [], []
        for name, before in self.weights.items():
            difference = now[name].float() - before.float()
            moved.append(difference.norm())
            sizes.append(before.float().norm())
            changed.append(difference.count_nonzero())
        # Fetched after the last is under way: a device is waited for once, not at every weight.
        size = math.hypot(*map(float, sizes))
        return {
            "optimiser/update_norm_ratio": Mean.of([math.hypot(*map(float, moved)) / size])
            if size
            else NotApplicable("every weight was zero before"),
            "optimiser/changed_weight_rate": Rate(
                sum(map(int, changed)), sum(before.numel() for before in self.weights.values())
            ),
        }


def _trainable(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Trainable weights by name, without gradient history; of a sharded one, this rank's part."""
    return [
        (name, _local(weight.detach()))
        for name, weight in model.named_parameters()
        if weight.requires_grad
    ]


def _local(weight: Tensor) -> Tensor:
    if torch.distributed.is_available():
        from torch.distributed.tensor import DTensor

        if isinstance(weight, DTensor):
            return weight.to_local()
    return weight
