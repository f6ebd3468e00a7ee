"""Muon: momentum whose matrix updates are made orthogonal before they are applied.

The warm start uses it because AdamW, at the same cost, learns the built-in tasks or not depending
on small changes of any setting, and then nobody knows where reinforcement learning begins. Source:
Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_MOMENTUM = 0.95


class Muon:
    """Optimises the matrices of hidden layers; everything else belongs to another optimiser.

    Args:
        matrices: the parameters, two-dimensional.
    """

    def __init__(self, matrices: Iterable[nn.Parameter]) -> None:
        by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for matrix in matrices:
            by_shape[matrix.shape].append(matrix)
        self._groups = [
            (group, torch.zeros(len(group), *shape)) for shape, group in by_shape.items()
        ]

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update every matrix from its gradient; equal shapes go through one batched product."""
        for group, momentum in self._groups:
            gradients = torch.stack([matrix.grad for matrix in group if matrix.grad is not None])
            momentum.lerp_(gradients, 1 - _MOMENTUM)
            updates = orthogonalise(gradients.lerp_(momentum, _MOMENTUM))
            rows, columns = momentum.shape[1:]
            scale = learning_rate * max(1.0, rows / columns) ** 0.5
            for matrix, update in zip(group, updates, strict=True):
                matrix.add_(update, alpha=-scale)


def orthogonalise(matrices_NRC: Tensor) -> Tensor:
    """Bring all singular values near one, by a quintic Newton-Schulz iteration.

    Args:
        matrices_NRC: a batch of matrices, R rows by C columns.

    Returns:
        The same singular vectors, singular values between about 0.7 and 1.2.
    """
    tall = matrices_NRC.shape[1] > matrices_NRC.shape[2]
    x = matrices_NRC.mT if tall else matrices_NRC
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result
