"""Entropy and log-probability of tokens from logits, in one pass and with little memory.

Logits are the largest tensor of a training step: 512 tokens with a vocabulary of 151,936 are 311 MB
in float32, and each softmax over them needs the same again. This module processes a few rows at a
time in two small buffers that stay in the cache. It keeps only the maximum, the sum of exponentials
and their dot product with the logits of each row. Shape suffixes: N tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from grpodoctor.errors import DataError

_BUFFER_ELEMENTS = {"cpu": 1 << 17, "cuda": 1 << 22}
"""Elements per buffer. On a CPU, two buffers and their rows fit into the second-level cache; an
accelerator needs this many elements to be busy. A row is never split."""
_SMALLEST_EXPONENT = -87.0
"""Its exp is about the smallest normal float32. Smaller terms add nothing to a sum, but subnormal
numbers are slow and the -inf of a masked token would give 0 * -inf."""


class _RowStatistics(NamedTuple):
    logsumexp_N: Tensor
    """Log of the sum of exponentials of logits / temperature."""
    entropy_N: Tensor


def entropy_and_logprobs(
    logits_NV: Tensor, ids_N: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Entropy of each row's distribution and log-probability of its token, without gradient.

    Args:
        logits_NV: float32, bfloat16 or float16, on any device; -inf marks a token that cannot be
            sampled. A row without a finite logit gives NaN.
        ids_N: the token of each row, int64.
        temperature: divides the logits.

    Returns:
        Entropy and log-probability in nats, float32, shape (N,) each.

    Raises:
        DataError: if the shapes are inconsistent or the temperature is not above zero.
    """
    _check(logits_NV, ids_N, temperature)
    with torch.no_grad():
        rows = _row_statistics(logits_NV, temperature)
        return rows.entropy_N, _pick(logits_NV, ids_N, temperature) - rows.logsumexp_N


@overload
def token_logprobs(
    logits_NV: Tensor,
    ids_N: Tensor,
    temperature: float = ...,
    *,
    with_entropy: Literal[False] = False,
) -> Tensor: ...


@overload
def token_logprobs(
    logits_NV: Tensor, ids_N: Tensor, temperature: float = ..., *, with_entropy: Literal[True]
) -> tuple[Tensor, Tensor]: ...


def token_logprobs(
    logits_NV: Tensor, ids_N: Tensor, temperature: float = 1.0, *, with_entropy: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Log-probability of each row's token and optionally the row's entropy, both differentiable.

    The backward pass needs the logits and no other tensor of their size. It allocates one such
    tensor, the gradient.

    Args:
        logits_NV: as for `entropy_and_logprobs`.
        ids_N: the token of each row, int64.
        temperature: divides the logits.
        with_entropy: return (log-probability, entropy) instead of only the log-probability.

    Returns:
        Float32 of shape (N,), in nats; a pair of them with `with_entropy`.

    Raises:
        DataError: if the shapes are inconsistent or the temperature is not above zero.
    """
    _check(logits_NV, ids_N, temperature)
    logprobs_N, entropy_N = _LogprobsAndEntropy.apply(  # type: ignore[no-untyped-call]  # torch's
        logits_NV, ids_N, temperature
    )
    return (logprobs_N, entropy_N) if with_entropy else logprobs_N


def _check(logits_NV: Tensor, ids_N: Tensor, temperature: float) -> None:
    if logits_NV.ndim != 2 or ids_N.shape != logits_NV.shape[:1]:
        raise DataError(
            f"logits of shape {tuple(logits_NV.shape)} do not fit ids of {tuple(ids_N.shape)}",
            remedy="give logits as (N, V) and one id per row",
        )
    if not temperature > 0:
        raise DataError(f"temperature {temperature} is not above zero", remedy="use 1.0 for none")


def _chunks(logits_NV: Tensor) -> Iterator[slice]:
    """Row ranges whose float32 copy fits into one buffer."""
    elements = _BUFFER_ELEMENTS.get(logits_NV.device.type, _BUFFER_ELEMENTS["cuda"])
    rows = max(1, elements // max(1, logits_NV.shape[1]))
    return (slice(i, min(i + rows, len(logits_NV))) for i in range(0, len(logits_NV), rows))


def _buffer(logits_NV: Tensor) -> Tensor:
    """An uninitialized float32 buffer for the largest chunk."""
    first = next(_chunks(logits_NV), slice(0, 0))
    return logits_NV.new_empty((first.stop, logits_NV.shape[1]), dtype=torch.float32)


def _pick(logits_NV: Tensor, ids_N: Tensor, temperature: float) -> Tensor:
    return logits_NV.gather(1, ids_N[:, None])[:, 0].float() / temperature


def _row_statistics(logits_NV: Tensor, temperature: float) -> _RowStatistics:
    """Log of the sum of exponentials, and entropy, of each row.

    With z = x/T - max(x/T): logsumexp = max + log(sum e^z), H = log(sum e^z) - sum(z e^z)/sum e^z.
    """
    scaled_buffer, weights_buffer = _buffer(logits_NV), _buffer(logits_NV)
    logsumexp_N = scaled_buffer.new_empty(len(logits_NV))
    entropy_N = torch.empty_like(logsumexp_N)
    for rows in _chunks(logits_NV):
        count = rows.stop - rows.start
        scaled, weights = scaled_buffer[:count], weights_buffer[:count]
        scaled.copy_(logits_NV[rows])
        if temperature != 1.0:
            scaled.div_(temperature)
        maximum = scaled.amax(-1, keepdim=True)
        scaled.sub_(maximum).clamp_(min=_SMALLEST_EXPONENT)
        torch.exp(scaled, out=weights)
        total = weights.sum(-1)
        log_total = total.log()
        torch.add(maximum[:, 0], log_total, out=logsumexp_N[rows])
        dot = weights.mul_(scaled).sum(-1)
        torch.sub(log_total, dot.div_(total), out=entropy_N[rows])
    return _RowStatistics(logsumexp_N, entropy_N)


class _Context(FunctionCtx):
    """Values that forward saves for backward."""

    saved_tensors: tuple[Tensor, ...]
    temperature: float


class _LogprobsAndEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _Context, logits_NV: Tensor, ids_N: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        rows = _row_statistics(logits_NV, temperature)
        ctx.save_for_backward(logits_NV, ids_N, *rows)
        ctx.temperature = temperature
        ctx.set_materialize_grads(False)
        return _pick(logits_NV, ids_N, temperature) - rows.logsumexp_N, rows.entropy_N

    @staticmethod
    @once_differentiable
    def backward(
        ctx: _Context, logprob_grad_N: Tensor | None, entropy_grad_N: Tensor | None
    ) -> tuple[Tensor | None, None, None]:
        logits_NV, ids_N, logsumexp_N, entropy_N = ctx.saved_tensors
        rows = _RowStatistics(logsumexp_N, entropy_N)
        if logprob_grad_N is None and entropy_grad_N is None:
            return None, None, None
        if logprob_grad_N is None:
            logprob_grad_N = torch.zeros_like(entropy_N)
        grad_NV = _logits_gradient(
            logits_NV, ids_N, ctx.temperature, rows, logprob_grad_N, entropy_grad_N
        )
        return grad_NV, None, None


def _logits_gradient(
    logits_NV: Tensor,
    ids_N: Tensor,
    temperature: float,
    rows: _RowStatistics,
    logprob_grad_N: Tensor,
    entropy_grad_N: Tensor | None,
) -> Tensor:
    """With p the row's distribution: (g (1[id] - p) - h p (log p + H)) / T for gradients g, h."""
    grad_NV = torch.empty_like(logits_NV)
    logs_buffer, weights_buffer = _buffer(logits_NV), _buffer(logits_NV)
    for chunk in _chunks(logits_NV):
        count = chunk.stop - chunk.start
        logs, weights = logs_buffer[:count], weights_buffer[:count]
        logs.copy_(logits_NV[chunk]).div_(temperature).sub_(rows.logsumexp_N[chunk, None])
        torch.exp(logs, out=weights)
        if entropy_grad_N is None:
            weights.mul_(logprob_grad_N[chunk, None])
        else:
            logs.clamp_(min=_SMALLEST_EXPONENT).add_(rows.entropy_N[chunk, None])
            logs.mul_(entropy_grad_N[chunk, None]).add_(logprob_grad_N[chunk, None])
            weights.mul_(logs)
        weights.div_(-temperature)
        weights.scatter_add_(1, ids_N[chunk, None], logprob_grad_N[chunk, None] / temperature)
        grad_NV[chunk] = weights
    return grad_NV
