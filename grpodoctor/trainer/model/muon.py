"""Muon in float32, for the matrices of the built-in model.

torch's Muon multiplies in bfloat16. Processors without instructions for it are up to 45 times
slower at that than in float32, and the matrices here are too small for a gain on the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

_MOMENTUM = 0.95
_COEFFICIENTS = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5
_SMALLEST_NORM = 1e-7


class Muon:
    """Momentum whose steps are made orthogonal.

    The coefficients, five iterations, Nesterov momentum and the scale of the rate are those of
    https://kellerjordan.github.io/posts/muon/, as in `torch.optim.Muon(..., weight_decay=0)`.

    Args:
        matrices: the weights to train, each of shape (rows, columns).
    """

    def __init__(self, matrices: Sequence[nn.Parameter]) -> None:
        by_shape = sorted(matrices, key=lambda matrix: matrix.shape)
        self._groups = [list(group) for _, group in groupby(by_shape, lambda each: each.shape)]
        """Matrices of one shape, which are multiplied together."""
        self._momenta = [torch.zeros(len(group), *group[0].shape) for group in self._groups]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Change the matrices by their gradients.

        Args:
            rate: learning rate; a matrix with more rows than columns takes a larger step.
        """
        for group, momentum_NRC in zip(self._groups, self._momenta, strict=True):
            gradient_NRC = torch.stack([_gradient(matrix) for matrix in group])
            momentum_NRC.lerp_(gradient_NRC, 1 - _MOMENTUM)
            update_NRC = orthogonal(gradient_NRC.lerp_(momentum_NRC, _MOMENTUM))
            rows, columns = group[0].shape
            size = rate * math.sqrt(max(1.0, rows / columns))
            for matrix, update_RC in zip(group, update_NRC.unbind(), strict=True):
                matrix.sub_(update_RC, alpha=size)


def _gradient(matrix: nn.Parameter) -> Tensor:
    return torch.zeros_like(matrix) if matrix.grad is None else matrix.grad


def orthogonal(matrices_NRC: Tensor) -> Tensor:
    """The matrices with all singular values near one, by five Newton-Schulz iterations.

    Args:
        matrices_NRC: N matrices of R rows and C columns.

    Returns:
        Matrices of the same shape with singular values of about .7 to 1.2; a zero matrix stays
        zero.
    """
    a, b, c = _COEFFICIENTS
    is_tall = matrices_NRC.shape[-2] > matrices_NRC.shape[-1]
    short_NSL = matrices_NRC.mT if is_tall else matrices_NRC
    norm_N11 = torch.linalg.matrix_norm(short_NSL, keepdim=True)
    short_NSL = short_NSL / norm_N11.clamp(min=_SMALLEST_NORM)  # no singular value above one
    for _ in range(_ITERATIONS):
        gram_NSS = short_NSL @ short_NSL.mT
        power_NSS = torch.baddbmm(gram_NSS, gram_NSS, gram_NSS, beta=b, alpha=c)
        short_NSL = torch.baddbmm(short_NSL, power_NSS, short_NSL, beta=a)
    return short_NSL.mT if is_tall else short_NSL
