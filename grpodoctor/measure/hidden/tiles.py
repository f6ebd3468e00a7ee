"""Reduce tiles of logits to running sums, and turn them into gradients, in torch.

The tile of a CPU stays in its last-level cache. There the exponential is the largest cost. A power
of two costs a third of it, so that the logits are in bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from grpodoctor.measure.hidden.head import LN2, Transform

_BLOCK_ELEMENTS = {"cpu": 1 << 19}
"""Elements processed at a time: on a CPU half a tile; tile and buffer fit into the last-level
cache. Smaller blocks stay in a core's own cache, but cost more calls than that saves."""
_SMALLEST_EXPONENT = -126.0
"""2 to this power is the smallest normal float32. The clamp keeps 0 * -inf out of the sums."""


class RowSums(NamedTuple):
    """Sums over the vocabulary entries seen so far, in bits; float32, shape (R,) each."""

    maximum_R: Tensor
    total_R: Tensor
    """Sum of 2^z, with z = logit - maximum."""
    dot_R: Tensor
    """Sum of z 2^z."""
    own_R: Tensor
    """Logit of the token itself; NaN until its tile was added."""

    @classmethod
    def empty(cls, count: int, device: torch.device) -> RowSums:
        """Sums over no entries."""
        maximum_R, own_R = (
            torch.full((count,), value, device=device) for value in (-math.inf, math.nan)
        )
        total_R, dot_R = (torch.zeros(count, device=device) for _ in range(2))
        return cls(maximum_R, total_R, dot_R, own_R)

    def rows(self, rows: slice) -> RowSums:
        """Views of some rows."""
        return RowSums(*(values_R[rows] for values_R in self))

    def scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probability (nats), entropy (nats), and log of the sum of 2^logit (bits)."""
        log_total_R = self.total_R.log2()
        logsum_R = self.maximum_R + log_total_R
        entropy_R = (log_total_R - self.dot_R / self.total_R) * LN2
        return (self.own_R - logsum_R) * LN2, entropy_R, logsum_R


class RowGradients(NamedTuple):
    """What the gradient of a row of logits consists of; float32, shape (R,) each."""

    logsum_R: Tensor
    entropy_R: Tensor
    logprob_grad_R: Tensor
    entropy_grad_R: Tensor | None

    def rows(self, rows: slice) -> RowGradients:
        """Views of some rows."""
        entropy_grad_R = self.entropy_grad_R
        return RowGradients(
            self.logsum_R[rows],
            self.entropy_R[rows],
            self.logprob_grad_R[rows],
            None if entropy_grad_R is None else entropy_grad_R[rows],
        )


def add_tile(
    sums: RowSums,
    products_RC: Tensor,
    ids_R: Tensor,
    transform: Transform,
    factor: float,
    bias_C: Tensor | None,
) -> None:
    """Add a tile to the sums; overwrites the tile.

    Args:
        sums: changed in place.
        products_RC: hidden states times the weights of C vocabulary entries.
        ids_R: the tokens, relative to the tile's first entry; those outside it belong to others.
        transform: from products to logits.
        factor: what `Transform.prescaled` has left.
        bias_C: of the tile's entries.
    """
    inside_R = (ids_R >= 0) & (ids_R < products_RC.shape[1])
    columns_R1 = torch.where(inside_R, ids_R, 0)[:, None]
    powers_RC: Tensor | None = None
    for rows in _blocks(products_RC):
        bits_RC = transform.to_bits(products_RC[rows], factor, bias_C)
        if powers_RC is None:
            powers_RC = torch.empty_like(bits_RC)
        part = sums.rows(rows)
        own_R = bits_RC.gather(1, columns_R1[rows])[:, 0]
        part.own_R.copy_(torch.where(inside_R[rows], own_R, part.own_R))
        _add_logits(part, bits_RC, powers_RC[: len(bits_RC)], clamp=bias_C is not None)


def _add_logits(sums: RowSums, bits_RC: Tensor, powers_RC: Tensor, *, clamp: bool) -> None:
    """Add the logits of some rows; overwrites both tensors."""
    maximum_R = torch.maximum(sums.maximum_R, bits_RC.amax(-1))
    shift_R = torch.where(sums.total_R == 0, 0.0, sums.maximum_R - maximum_R)
    bits_RC.sub_(maximum_R[:, None])
    if clamp:
        bits_RC.clamp_(min=_SMALLEST_EXPONENT)
    torch.exp2(bits_RC, out=powers_RC)
    decay_R = shift_R.exp2()
    sums.dot_R.addcmul_(sums.total_R, shift_R).mul_(decay_R)
    sums.total_R.mul_(decay_R).add_(powers_RC.sum(-1))
    sums.dot_R.add_(powers_RC.mul_(bits_RC).sum(-1))
    sums.maximum_R.copy_(maximum_R)


def to_gradient(
    products_RC: Tensor,
    rows_gradient: RowGradients,
    transform: Transform,
    factor: float,
    bias_C: Tensor | None,
) -> None:
    """Replace a tile of products by its gradient, without the share of the tokens themselves.

    With p the row's distribution and H its entropy, a product's gradient is
    -(g p + h p (log p + H)) times the slope of the logit, for the gradients g of the
    log-probability and h of the entropy.
    """
    for rows in _blocks(products_RC):
        row = rows_gradient.rows(rows)
        bits_RC = transform.to_bits(products_RC[rows], factor, bias_C)
        slope = transform.slope(bits_RC)
        bits_RC.sub_(row.logsum_R[:, None]).clamp_(min=_SMALLEST_EXPONENT)
        gradient_RC = torch.exp2(bits_RC)
        logprob_grad_R1 = row.logprob_grad_R[:, None]
        if row.entropy_grad_R is None:
            gradient_RC.mul_(-logprob_grad_R1)
        else:
            entropy_grad_R1 = row.entropy_grad_R[:, None]
            bits_RC.mul_(entropy_grad_R1 * -LN2)
            bits_RC.sub_(logprob_grad_R1 + entropy_grad_R1 * row.entropy_R[:, None])
            gradient_RC.mul_(bits_RC)
        products_RC[rows] = gradient_RC.mul_(slope)


def _blocks(tile_RC: Tensor) -> Iterator[slice]:
    count, columns = tile_RC.shape
    elements = _BLOCK_ELEMENTS.get(tile_RC.device.type, tile_RC.numel())
    step = max(1, elements // max(1, columns))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))
