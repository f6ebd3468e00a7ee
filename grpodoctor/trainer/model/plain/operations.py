"""Norm, gate and rotation with backward passes that read and write little memory.

On a CPU, each pass over the activations of a batch costs as much as a small matrix product.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


class _Context(FunctionCtx):
    """Values that forward saves for backward."""

    saved_tensors: tuple[Tensor, ...]
    heads: int


def unit_rms(hidden_NW: Tensor, epsilon: float) -> Tensor:
    """Each row divided by its root mean square; differentiable."""
    normed_NW: Tensor = _UnitRms.apply(hidden_NW, epsilon)  # type: ignore[no-untyped-call]  # torch's
    return normed_NW


def gated_silu(gate_up: Tensor) -> Tensor:
    """The product silu(gate) * up of a matrix with gates in its left and ups in its right half."""
    gated: Tensor = _GatedSilu.apply(gate_up)  # type: ignore[no-untyped-call]  # torch's
    return gated


def rotated(states: Tensor, rotations: Tensor, heads: int) -> Tensor:
    """Rotate the first heads of each token in place; differentiable in the states.

    Args:
        states: (N, all heads, D), where neighbouring entries of a head rotate together.
        rotations: complex64, (N, 1, D / 2).
        heads: number of heads to rotate.
    """
    result: Tensor = _Rotation.apply(states, rotations, heads)  # type: ignore[no-untyped-call]  # torch's
    return result


def inverse_rms(hidden_NW: Tensor, epsilon: float) -> Tensor:
    """One over the root mean square of each row, (N, 1)."""
    squares_N: Tensor = torch.linalg.vecdot(hidden_NW, hidden_NW)
    return squares_N.div_(hidden_NW.shape[1]).add_(epsilon).rsqrt_().unsqueeze(1)


def rotate_(states: Tensor, rotations: Tensor, heads: int) -> None:
    """As `rotated`, without a gradient."""
    pairs = states[:, :heads].view(len(states), heads, -1, 2)
    torch.view_as_complex(pairs).mul_(rotations)


class _UnitRms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, hidden_NW: Tensor, epsilon: float) -> Tensor:
        inverse_N1 = inverse_rms(hidden_NW, epsilon)
        normed_NW = hidden_NW * inverse_N1
        ctx.save_for_backward(normed_NW, inverse_N1)
        return normed_NW

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad_NW: Tensor) -> tuple[Tensor, None]:
        normed_NW, inverse_N1 = ctx.saved_tensors
        along_N1 = torch.linalg.vecdot(grad_NW, normed_NW).unsqueeze(1)
        share = -1 / normed_NW.shape[1]
        return torch.addcmul(grad_NW, normed_NW, along_N1, value=share).mul_(inverse_N1), None


class _GatedSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        opened = torch.nn.functional.silu(gate)
        ctx.save_for_backward(gate_up, opened)
        return opened * up

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> Tensor:
        gate_up, opened = ctx.saved_tensors
        gate, up = gate_up.chunk(2, dim=-1)
        result = torch.empty_like(gate_up)
        gate_grad, up_grad = result.chunk(2, dim=-1)
        torch.mul(grad, opened, out=up_grad)
        torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=gate_grad)
        return result


class _Rotation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, states: Tensor, rotations: Tensor, heads: int) -> Tensor:
        ctx.mark_dirty(states)
        ctx.save_for_backward(rotations)
        ctx.heads = heads
        rotate_(states, rotations, heads)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None, None]:
        (rotations,) = ctx.saved_tensors
        result = grad.clone(memory_format=torch.contiguous_format)
        rotate_(result, rotations.conj(), ctx.heads)
        return result, None, None
