"""Shards the learner's weights over ranks with FSDP2, and gathers them again.

Each decoder layer is gathered just before it is used and freed afterwards; so are the embeddings
and the head. Gradients are summed over ranks, never averaged: the loss already has the denominators
of the whole optimizer step.

Every rank also keeps a whole copy of the policy, without gradients or optimizer state. Sampling,
evaluation and checkpoints read this copy and need no collective calls. The learner's shards are
gathered into it once per training step.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from grpodoctor.trainer.distributed.ranks import Ranks, detecting_lost_ranks
from grpodoctor.trainer.moe.routers import is_mixture

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def shard(model: PreTrainedModel, ranks: Ranks) -> PreTrainedModel:
    """A copy of the model, sharded over the ranks; the model itself with a single process."""
    if ranks.world == 1:
        return model
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    sharded = copy.deepcopy(model)
    mesh = init_device_mesh(next(model.parameters()).device.type, (ranks.world,))
    precision = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for module in (*_layers(sharded), sharded):
        # The root frees its weights after each forward pass too. Otherwise a pass without backward
        # would leave it with gathered weights that the next optimizer step does not update.
        fully_shard(module, mesh=mesh, mp_policy=precision, reshard_after_forward=True)
    for module in sharded.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
            if is_mixture(model) and hasattr(module, "set_reduce_scatter_unused_params"):
                # An expert unused by one rank's tokens may be used by another's; since torch 2.13.
                module.set_reduce_scatter_unused_params(True, recurse=False)
    return sharded


def _layers(model: PreTrainedModel) -> list[nn.Module]:
    """The decoder layers; empty if the model has no list of them, so that it is one unit."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return list(module)
    return []


@torch.no_grad()
def gather_weights(sharded: nn.Module, whole: nn.Module) -> None:
    """Copy the shards of all ranks into a whole model; every rank must call it.

    Does nothing if both are the same model.
    """
    if sharded is whole:
        return
    for weight, target in _pairs(sharded, whole):
        target.copy_(full_tensor(weight))


@torch.no_grad()
def scatter_weights(whole: nn.Module, sharded: nn.Module) -> None:
    """Inverse of `gather_weights`; needs no communication."""
    if sharded is whole:
        return
    for weight, original in _pairs(sharded, whole):
        weight.copy_(distribute_like(original, weight))


class _Pair(NamedTuple):
    sharded: Tensor
    whole: Tensor


def _pairs(sharded: nn.Module, whole: nn.Module) -> list[_Pair]:
    """The trainable weights of both models; tied weights once."""
    whole_weights = dict(whole.named_parameters())
    return [
        _Pair(weight, whole_weights[name])
        for name, weight in sharded.named_parameters()
        if weight.requires_grad
    ]


def full_tensor(tensor: Tensor) -> Tensor:
    """The whole tensor; every rank must call it for a sharded tensor."""
    from torch.distributed.tensor import DTensor

    if not isinstance(tensor, DTensor):
        return tensor
    with detecting_lost_ranks():
        return tensor.full_tensor()


def distribute_like(whole: Tensor, sharded: Tensor) -> Tensor:
    """A whole tensor sharded like another one; unchanged if that is whole or of another shape."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(sharded, DTensor) or whole.shape != sharded.shape:
        return whole
    mesh, placements = sharded.device_mesh, sharded.placements
    return distribute_tensor(whole, mesh, placements, src_data_rank=None)
