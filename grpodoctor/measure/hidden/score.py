"""Log-probability and entropy of tokens from hidden states, tile by tile.

The product of the hidden states with the head's weights is the largest tensor of a training step.
This module forms a tile of it at a time, reduces the tile to four numbers per token, and forgets
it. The backward pass forms the tiles again: one matrix product forward, three backward (the
products again, the gradient of the hidden states, the gradient of the weights).

Shape suffixes: N tokens, D hidden size, V vocabulary, R tokens of a chunk, C columns of a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from grpodoctor.errors import DataError
from grpodoctor.measure.hidden import tiles
from grpodoctor.measure.hidden.head import Head, TokenScores, Transform
from grpodoctor.measure.hidden.tiles import RowGradients, RowSums

_CHUNK_TOKENS = {"cpu": 1024, "cuda": 8192}
"""Tokens of a chunk. The weights are read once per chunk, so that a chunk must not be small."""
_TILE_ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 25}
"""Elements of a tile: on a CPU 4 MiB of float32, within the last-level cache; on an accelerator as
many as an efficient matrix product needs."""
_FEWEST_COLUMNS = 1024
"""With fewer columns the product packs the hidden states too often."""


def score_hidden(
    hidden_ND: Tensor, head: Head, ids_N: Tensor, temperature: float = 1.0
) -> TokenScores:
    """Log-probability of each token and entropy of its distribution; both are differentiable.

    Products are taken in the dtype of the hidden states, or that of autocast where it is enabled,
    as a model's own head does. All sums are in float32.

    Args:
        hidden_ND: the hidden states that predict the tokens, after the model's last norm.
        head: of the model, on the same device.
        ids_N: the tokens, int64.
        temperature: divides the logits.

    Returns:
        Scores with gradients for the hidden states, the weight and the bias. A hidden state that
        is not finite gives NaN, as does, on an accelerator, an id outside the vocabulary.

    Raises:
        DataError: if shapes or, on a CPU, ids do not fit, or the temperature is not above zero.
    """
    _check(hidden_ND, head, ids_N, temperature)
    hidden_ND, weight_VD = _in_compute_dtype(hidden_ND, head.weight_VD)
    transform = Transform(head.scale, head.softcap, temperature)
    logprobs_N, entropy_N = _Score.apply(  # type: ignore[no-untyped-call]  # torch's
        hidden_ND, weight_VD, head.bias_V, ids_N, transform
    )
    return TokenScores(logprobs_N, entropy_N)


def _check(hidden_ND: Tensor, head: Head, ids_N: Tensor, temperature: float) -> None:
    hidden, weight = tuple(hidden_ND.shape), tuple(head.weight_VD.shape)
    if len(hidden) != 2 or hidden[1] != weight[1] or tuple(ids_N.shape) != hidden[:1]:
        raise DataError(
            f"hidden states of shape {hidden} do not fit a head of shape {weight} "
            f"and ids of shape {tuple(ids_N.shape)}",
            remedy="give hidden states as (N, D), a head of (V, D) and one id per hidden state",
        )
    if not temperature > 0:
        raise DataError(f"temperature {temperature} is not above zero", remedy="use 1.0 for none")
    if ids_N.device.type == "cpu":  # an accelerator would have to be waited for
        outside_N = ids_N[(ids_N < 0) | (ids_N >= weight[0])]
        if len(outside_N):
            raise DataError(
                f"id {int(outside_N[0])} is outside the vocabulary of {weight[0]}",
                remedy="leave out ignored positions, such as those labelled -100",
            )


def _in_compute_dtype(hidden_ND: Tensor, weight_VD: Tensor) -> tuple[Tensor, Tensor]:
    device = hidden_ND.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    dtype = dtype or hidden_ND.dtype
    return hidden_ND.to(dtype), weight_VD.to(dtype)


class _Inputs(NamedTuple):
    """The tensors that can have a gradient."""

    hidden_ND: Tensor
    weight_VD: Tensor
    bias_V: Tensor | None


class _Tile(NamedTuple):
    tokens: slice
    entries: slice


class _Context(FunctionCtx):
    """Values that forward saves for backward."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]
    bias_V: Tensor | None
    transform: Transform


class _Score(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _Context,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        ids_N: Tensor,
        transform: Transform,
    ) -> tuple[Tensor, Tensor]:
        sums = RowSums.empty(len(hidden_ND), hidden_ND.device)
        kernels = _kernels(hidden_ND.device)
        inputs = _Inputs(hidden_ND, weight_VD, bias_V)
        for tile, products_RC, factor, bias_C in _products(inputs, transform):
            kernels.add_tile(
                sums.rows(tile.tokens),
                products_RC,
                ids_N[tile.tokens] - tile.entries.start,
                transform,
                factor,
                bias_C,
            )
        logprobs_N, entropy_N, logsum_N = sums.scores()
        ctx.save_for_backward(hidden_ND, weight_VD, ids_N, sums.own_R, logsum_N, entropy_N)
        ctx.bias_V, ctx.transform = bias_V, transform
        ctx.set_materialize_grads(False)
        return logprobs_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(
        ctx: _Context, logprob_grad_N: Tensor | None, entropy_grad_N: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_VD, ids_N, own_N, logsum_N, entropy_N = ctx.saved_tensors
        if logprob_grad_N is None and entropy_grad_N is None:
            return (None,) * 5
        if logprob_grad_N is None:
            logprob_grad_N = torch.zeros_like(entropy_N)
        rows_gradient = RowGradients(logsum_N, entropy_N, logprob_grad_N, entropy_grad_N)
        inputs = _Inputs(hidden_ND, weight_VD, ctx.bias_V)
        gradients = _Gradients(inputs, ctx.needs_input_grad)
        gradients.add_tiles(rows_gradient, ctx.transform)
        gradients.add_tokens(ids_N, logprob_grad_N * ctx.transform.slope(own_N))
        return (*gradients.results(), None, None)


class _Gradients:
    """Float32 gradients of hidden states, weight and bias, where they are needed."""

    def __init__(self, inputs: _Inputs, needed: tuple[bool, ...]) -> None:
        self._inputs = inputs
        self._hidden_ND, self._weight_VD, self._bias_V = (
            torch.zeros_like(values, dtype=torch.float32)
            if values is not None and is_needed
            else None
            for values, is_needed in zip(inputs, needed, strict=False)
        )

    def add_tiles(self, rows_gradient: RowGradients, transform: Transform) -> None:
        """Add the gradient through each row's distribution."""
        kernels = _kernels(self._inputs.hidden_ND.device)
        for tile, gradient_RC, factor, bias_C in _products(self._inputs, transform):
            chunk = rows_gradient.rows(tile.tokens)
            kernels.to_gradient(gradient_RC, chunk, transform, factor, bias_C)
            self._add_tile(tile, gradient_RC)

    def _add_tile(self, tile: _Tile, gradient_RC: Tensor) -> None:
        tokens, entries = tile
        if self._hidden_ND is not None:
            weight_CD = self._inputs.weight_VD[entries]
            _add_product(self._hidden_ND[tokens], gradient_RC, weight_CD)
        if self._weight_VD is not None:
            hidden_RD = self._inputs.hidden_ND[tokens]
            _add_product(self._weight_VD[entries], gradient_RC.t(), hidden_RD)
        if self._bias_V is not None:
            self._bias_V[entries] += gradient_RC.sum(0, dtype=torch.float32)

    def add_tokens(self, ids_N: Tensor, grad_N: Tensor) -> None:
        """Add the gradient through the tokens' own logits."""
        hidden_ND, weight_VD, _ = self._inputs
        if self._hidden_ND is not None:
            self._hidden_ND.addcmul_(weight_VD[ids_N].float(), grad_N[:, None])
        if self._weight_VD is not None:
            self._weight_VD.index_add_(0, ids_N, hidden_ND.float() * grad_N[:, None])
        if self._bias_V is not None:
            self._bias_V.index_add_(0, ids_N, grad_N)

    def results(self) -> tuple[Tensor | None, ...]:
        """In the dtypes of the inputs."""
        gradients = (self._hidden_ND, self._weight_VD, self._bias_V)
        return tuple(
            None if gradient is None or values is None else gradient.to(values.dtype)
            for gradient, values in zip(gradients, self._inputs, strict=True)
        )


def _add_product(sum_XY: Tensor, left_XZ: Tensor, right_ZY: Tensor) -> None:
    """Add a product to a float32 sum."""
    if left_XZ.dtype == torch.float32:
        sum_XY.addmm_(left_XZ, right_ZY)
    else:
        sum_XY.add_(left_XZ @ right_ZY)


def _products(
    inputs: _Inputs, transform: Transform
) -> Iterator[tuple[_Tile, Tensor, float, Tensor | None]]:
    """Each tile's position, products, remaining factor and bias; all tiles share one buffer."""
    hidden_ND, weight_VD, bias_V = inputs
    device, vocabulary = hidden_ND.device, len(weight_VD)
    chunk = min(len(hidden_ND), _CHUNK_TOKENS.get(device.type, _CHUNK_TOKENS["cuda"]))
    elements = _TILE_ELEMENTS.get(device.type, _TILE_ELEMENTS["cuda"])
    columns = min(vocabulary, max(_FEWEST_COLUMNS, elements // max(1, chunk)))
    buffer = hidden_ND.new_empty(chunk * columns)
    for start in range(0, len(hidden_ND), max(1, chunk)):
        tokens = slice(start, min(start + chunk, len(hidden_ND)))
        states_RD, factor = transform.prescaled(hidden_ND[tokens], has_bias=bias_V is not None)
        for first in range(0, vocabulary, columns):
            entries = slice(first, min(first + columns, vocabulary))
            shape = (tokens.stop - start, entries.stop - first)
            tile_RC = buffer[: shape[0] * shape[1]].view(shape)
            torch.mm(states_RD, weight_VD[entries].t(), out=tile_RC)
            bias_C = None if bias_V is None else bias_V[entries]
            yield _Tile(tokens, entries), tile_RC, factor, bias_C


def _kernels(device: torch.device) -> ModuleType:
    """The module that processes the tiles of a device."""
    if device.type != "cuda":
        return tiles
    try:
        from grpodoctor.measure.hidden import triton_tiles
    except ImportError:
        return tiles
    return triton_tiles
