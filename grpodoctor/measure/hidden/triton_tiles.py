"""`grpodoctor.measure.hidden.tiles` for CUDA: one Triton kernel reads each tile once.

The functions have the same names, arguments and results. Importing this module without Triton
raises ImportError.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from grpodoctor.measure.hidden.head import LN2, Transform
from grpodoctor.measure.hidden.tiles import RowGradients, RowSums

_BLOCK = 2048
"""Columns that a program processes at a time."""
_SMALLEST_EXPONENT = tl.constexpr(-126.0)


class _Scaling(NamedTuple):
    """logit in bits = outer * tanh(inner * (product + bias)), or without a cap inner * (...)."""

    inner: float
    outer: float
    has_cap: bool

    @classmethod
    def of(cls, transform: Transform, factor: float, *, has_bias: bool) -> _Scaling:
        """The scaling of a transform, times the remaining `factor`."""
        if transform.softcap is not None:
            inner = transform.scale / transform.softcap
            return cls(inner, transform.softcap * transform.bits_per_logit, True)
        inner = transform.scale * transform.bits_per_logit if has_bias else factor
        return cls(inner, 1.0, False)


def add_tile(
    sums: RowSums,
    products_RC: Tensor,
    ids_R: Tensor,
    transform: Transform,
    factor: float,
    bias_C: Tensor | None,
) -> None:
    """Add a tile to the sums; see `tiles.add_tile`."""
    count, columns = products_RC.shape
    scaling = _Scaling.of(transform, factor, has_bias=bias_C is not None)
    _launch(
        _add_tile_kernel,
        (count,),
        products_RC,
        *sums,
        ids_R,
        products_RC if bias_C is None else bias_C,
        columns,
        scaling.inner,
        scaling.outer,
        HAS_BIAS=bias_C is not None,
        HAS_CAP=scaling.has_cap,
        BLOCK=_BLOCK,
    )


def to_gradient(
    products_RC: Tensor,
    rows_gradient: RowGradients,
    transform: Transform,
    factor: float,
    bias_C: Tensor | None,
) -> None:
    """Replace a tile of products by its gradient; see `tiles.to_gradient`."""
    count, columns = products_RC.shape
    logsum_R, entropy_R, logprob_grad_R, entropy_grad_R = rows_gradient
    scaling = _Scaling.of(transform, factor, has_bias=bias_C is not None)
    _launch(
        _gradient_kernel,
        (count, math.ceil(columns / _BLOCK)),
        products_RC,
        logsum_R,
        entropy_R,
        logprob_grad_R.contiguous(),
        logprob_grad_R if entropy_grad_R is None else entropy_grad_R.contiguous(),
        products_RC if bias_C is None else bias_C,
        columns,
        scaling.inner,
        scaling.outer,
        transform.scale / transform.temperature,
        LN2,
        HAS_BIAS=bias_C is not None,
        HAS_CAP=scaling.has_cap,
        HAS_ENTROPY=entropy_grad_R is not None,
        BLOCK=_BLOCK,
    )


def _launch(
    kernel: Any, grid: tuple[int, ...], tile: Tensor, *arguments: Any, **flags: Any
) -> None:
    """Run a kernel on the tile's device, which need not be the current one.

    Triton's interpreter, with which the tests run, takes tiles of the CPU.
    """
    if 0 not in grid:
        with torch.cuda.device(tile.device) if tile.is_cuda else nullcontext():
            kernel[grid](tile, *arguments, **flags)


@triton.jit  # type: ignore[untyped-decorator]
def _bits(  # type: ignore[no-untyped-def]  # Triton has no types
    products,
    bias,
    columns,
    inside,
    inner,
    outer,
    HAS_BIAS: tl.constexpr,
    HAS_CAP: tl.constexpr,
):
    """Logits in bits of one row, float32, and the tanh of the cap."""
    values = tl.load(products + columns, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        values += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    values *= inner
    if HAS_CAP:
        values = outer * (2.0 * tl.sigmoid(2.0 * values) - 1.0)
    return values


@triton.jit  # type: ignore[untyped-decorator]
def _add_tile_kernel(  # type: ignore[no-untyped-def]
    products,
    maximums,
    totals,
    dots,
    owns,
    ids,
    bias,
    column_count,
    inner,
    outer,
    HAS_BIAS: tl.constexpr,
    HAS_CAP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    products += row.to(tl.int64) * column_count
    maximum, total, dot = tl.load(maximums + row), tl.load(totals + row), tl.load(dots + row)
    for start in range(0, column_count, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < column_count
        bits = _bits(products, bias, columns, inside, inner, outer, HAS_BIAS, HAS_CAP)
        bits = tl.where(inside, bits, float("-inf"))
        larger = tl.maximum(maximum, tl.max(bits, 0))
        shift = tl.where(total == 0.0, 0.0, maximum - larger)
        decay = tl.exp2(shift)
        powers = tl.exp2(bits - larger)
        exponents = tl.maximum(bits - larger, _SMALLEST_EXPONENT)
        dot = (dot + total * shift) * decay + tl.sum(powers * exponents, 0)
        total = total * decay + tl.sum(powers, 0)
        maximum = larger
    tl.store(maximums + row, maximum)
    tl.store(totals + row, total)
    tl.store(dots + row, dot)
    own_id = tl.load(ids + row)
    if (own_id >= 0) & (own_id < column_count):
        tl.store(
            owns + row, _bits(products, bias, own_id, own_id >= 0, inner, outer, HAS_BIAS, HAS_CAP)
        )


@triton.jit  # type: ignore[untyped-decorator]
def _gradient_kernel(  # type: ignore[no-untyped-def]
    products,
    logsums,
    entropies,
    logprob_grads,
    entropy_grads,
    bias,
    column_count,
    inner,
    outer,
    slope,
    ln2,
    HAS_BIAS: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_ENTROPY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    products += row.to(tl.int64) * column_count
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < column_count
    bits = _bits(products, bias, columns, inside, inner, outer, HAS_BIAS, HAS_CAP)
    relative = tl.maximum(bits - tl.load(logsums + row), _SMALLEST_EXPONENT)
    gradient = -tl.load(logprob_grads + row)
    if HAS_ENTROPY:
        entropy_grad = tl.load(entropy_grads + row)
        gradient -= entropy_grad * (relative * ln2 + tl.load(entropies + row))
    gradient *= tl.exp2(relative) * slope
    if HAS_CAP:
        capped = bits / outer
        gradient *= 1.0 - capped * capped
    tl.store(products + columns, gradient.to(products.dtype.element_ty), mask=inside)
