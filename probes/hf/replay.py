"""Routing replay: force the routers of a transformers model to another engine's experts.

As in R3 (arXiv 2510.11370), only the choice of experts is forced; their weights are the router's
own softmax over them. This works for routers that return logits, weights and ids and whose weights
are such a softmax.

Shape suffixes: N tokens of a pass, D layers with a router, E experts, K experts per token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from contract import RefusalError
from torch import Tensor, nn

_ROUNDING_32, _ROUNDING_16 = 1e-5, 1e-2
"""Rounding of a weight, which is at most 1, in 32-bit and 16-bit arithmetic."""


def check_experts(name: str, experts_NDK: Any, shape: tuple[int, int, int], experts: int) -> None:
    """Check that experts can be forced on a response's tokens.

    Args:
        name: of the response, for messages.
        experts_NDK: an integer array, or None.
        shape: the required shape.
        experts: number of experts per layer.

    Raises:
        RefusalError: if the experts cannot be those of this model.
    """
    actual_shape = None if experts_NDK is None else tuple(experts_NDK.shape)
    if actual_shape != shape:
        raise RefusalError(
            f"{name} has experts of shape {actual_shape} to replay, but this model needs {shape}: "
            "tokens, layers, experts per token",
            "use the same model on both sides",
        )
    in_order = np.sort(experts_NDK, axis=2)
    if in_order.size and not -1 <= in_order.min() <= in_order.max() < experts:
        invalid = in_order.min() if in_order.min() < -1 else in_order.max()
        raise RefusalError(
            f"{name} has the expert {invalid} to replay, but this model has {experts}",
            "use the same model on both sides; -1 marks an unknown expert",
        )
    if ((in_order[..., 1:] == in_order[..., :-1]) & (in_order[..., :-1] >= 0)).any():
        raise RefusalError(
            f"{name} has a token that was routed to the same expert twice in a layer",
            "check the experts that the sampler returns",
        )


def forced(router: nn.Module, output: Any, given_NK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A router's output with other experts, weighted by its own softmax over them.

    Tokens for which the router chose the same experts keep its output, bit for bit.

    Args:
        router: the router.
        output: its output: logits (N, E), weights (N, K) and ids (N, K).
        given_NK: the experts; if one of a token's experts is -1, the router's choice is kept.

    Raises:
        RefusalError: if the router has another output, or its weights are not such a softmax.
    """
    logits_NE, weights_NK, ids_NK = _softmax_answer(router, output)
    given_NK = given_NK.to(ids_NK)
    moved_N = (given_NK.sort(dim=1).values != ids_NK.sort(dim=1).values).any(dim=1)
    moved_N1 = (moved_N & (given_NK >= 0).all(dim=1))[:, None]
    ids_NK = torch.where(moved_N1, given_NK, ids_NK)
    softmax_NK = gate_weights(router, logits_NE, ids_NK).to(weights_NK.dtype)
    return logits_NE, torch.where(moved_N1, softmax_NK, weights_NK), ids_NK


def gate_weights(router: nn.Module, logits_NE: Tensor, ids_NK: Tensor) -> Tensor:
    """The weights that a softmax router gives to experts, float32, shape (N, K)."""
    weights_NK = torch.softmax(logits_NE, dim=-1, dtype=torch.float32).gather(1, ids_NK.long())
    # Families without this setting take the softmax over the chosen experts, which is the same.
    if getattr(router, "norm_topk_prob", True):
        weights_NK = weights_NK / weights_NK.sum(dim=-1, keepdim=True)
    return weights_NK


def _softmax_answer(router: nn.Module, output: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A router's output, if its weights equal `gate_weights` of the chosen experts."""
    parts = output if isinstance(output, tuple) else (output,)
    if len(parts) == 3 and all(isinstance(part, Tensor) and part.ndim == 2 for part in parts):
        logits_NE, weights_NK, ids_NK = parts
        if not ids_NK.is_floating_point() and weights_NK.shape == ids_NK.shape:
            off = (gate_weights(router, logits_NE, ids_NK) - weights_NK.float()).abs().max()
            narrow = {logits_NE.dtype, weights_NK.dtype} != {torch.float32}
            if float(off) <= (_ROUNDING_16 if narrow else _ROUNDING_32):
                return logits_NE, weights_NK, ids_NK
    raise RefusalError(
        f"experts cannot be forced on a {type(router).__name__}: its weights are not a softmax of "
        "logits that it returns",
        "replay in a model whose routers do this, such as Mixtral, Qwen or OLMoE",
    )
