"""Muon in float32 against torch's, which works in bfloat16."""

import torch
from torch import nn

from grpodoctor.trainer.model.muon import Muon, orthogonal

BFLOAT16 = 2.0**-8
"""Relative rounding of torch's Muon."""


def _matrices(shapes: list[tuple[int, int]], seed: int) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def test_steps_are_those_of_torch() -> None:
    shapes = [(24, 24), (40, 24), (24, 40), (24, 24)]
    ours, theirs = _matrices(shapes, seed=1), _matrices(shapes, seed=1)
    mine = Muon(ours)
    reference = torch.optim.Muon(theirs, lr=0.5, weight_decay=0.0, adjust_lr_fn="original")
    for step in range(4):
        gradients = _matrices(shapes, seed=2 + step)
        for left, right, gradient in zip(ours, theirs, gradients, strict=True):
            left.grad, right.grad = gradient.detach(), gradient.detach().clone()
        mine.step(0.5)
        reference.step()
    start = _matrices(shapes, seed=1)
    for left, right, first in zip(ours, theirs, start, strict=True):
        moved = (right - first).norm()
        assert moved > 1
        # Each of the ten products and five sums of an iteration rounds.
        assert (left - right).norm() < 15 * BFLOAT16 * moved


def test_singular_values_are_near_one() -> None:
    matrices_NRC = torch.randn(3, 48, 16, generator=torch.Generator().manual_seed(3))
    values = torch.linalg.svdvals(orthogonal(1e-3 * matrices_NRC))
    assert 0.6 < values.min() < values.max() < 1.3


def test_a_zero_gradient_and_a_missing_one_change_nothing() -> None:
    without, zero = matrices = _matrices([(8, 4), (8, 4)], seed=4)
    zero.grad = torch.zeros_like(zero)
    before = [matrix.detach().clone() for matrix in matrices]
    Muon(matrices).step(0.5)
    assert all(map(torch.equal, matrices, before))
    assert without.grad is None
