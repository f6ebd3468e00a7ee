"""The learner's weights divided among ranks, by FSDP2, and put together again.

Each decoder layer is gathered just before it is needed and let go of after; so are the embeddings
and the head. Gradients are summed over ranks, never averaged: the loss has the denominators of the
whole optimizer step already.

The policy itself stays whole on every rank, without gradients or optimizer state: whatever samples,
is evaluated or saved reads it, as in one process, and makes no call that another rank would have to
answer. The learner's shards are gathered into it once a training step.
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
    """A copy of the model, divided among the ranks; the model itself where there is one alone.

    Args:
        model: the same on each rank.
        ranks: with a process group.
    """
    if ranks.world == 1:
        return model
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    divided = copy.deepcopy(model)
    mesh = init_device_mesh(next(model.parameters()).device.type, (ranks.world,))
    sums = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for module in (*_layers(divided), divided):
        # The root too lets go of its weights after each forward pass: those without a backward
        # pass would leave it with weights that the next optimizer step does not reach.
        fully_shard(module, mesh=mesh, mp_policy=sums, reshard_after_forward=True)
    for module in divided.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
            if is_mixture(model) and hasattr(module, "set_reduce_scatter_unused_params"):
                # An expert that one rank's tokens pass by may be another's; since torch 2.13.
                module.set_reduce_scatter_unused_params(True, recurse=False)
    return divided


def _layers(model: PreTrainedModel) -> list[nn.Module]:
    """The decoder layers; none, so that all is one unit, where the model has no list of them."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return list(module)
    return []


@torch.no_grad()
def gather_weights(divided: nn.Module, whole: nn.Module) -> None:
    """Copy the shards of all ranks into a whole model; each of them must call it.

    Does nothing where the two are one.
    """
    if divided is whole:
        return
    for weight, copied in _pairs(divided, whole):
        copied.copy_(full_tensor(weight))


@torch.no_grad()
def scatter_weights(whole: nn.Module, divided: nn.Module) -> None:
    """Inverse of `gather_weights`; no rank asks another."""
    if divided is whole:
        return
    for weight, original in _pairs(divided, whole):
        weight.copy_(distribute_like(original, weight))


class _Pair(NamedTuple):
    divided: Tensor
    whole: Tensor


def _pairs(divided: nn.Module, whole: nn.Module) -> list[_Pair]:
    """The trainable weights of both; tied ones once."""
    same = dict(whole.named_parameters())
    return [
        _Pair(weight, same[name])
        for name, weight in divided.named_parameters()
        if weight.requires_grad
    ]


def full_tensor(tensor: Tensor) -> Tensor:
    """The whole of a tensor; of a divided one each rank must ask for it."""
    from torch.distributed.tensor import DTensor

    if not isinstance(tensor, DTensor):
        return tensor
    with detecting_lost_ranks():
        return tensor.full_tensor()


def distribute_like(whole: Tensor, divided: Tensor) -> Tensor:
    """A whole tensor divided as another one is; itself if that is whole, or of another shape."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(divided, DTensor) or whole.shape != divided.shape:
        return whole
    mesh, placements = divided.device_mesh, divided.placements
    return distribute_tensor(whole, mesh, placements, src_data_rank=None)
