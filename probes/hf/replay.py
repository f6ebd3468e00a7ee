"""Routing replay: a router of transformers is made to choose the experts that another engine chose.

As R3 does (arXiv 2510.11370) the experts alone are forced, and what they weigh is the router's own
softmax over them. That can be done to routers that say logits, weights and ids, and weigh so.

Shape suffixes: N tokens of a pass, D layers with a router, E experts, K experts of a token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from contract import RefusalError
from torch import Tensor, nn

_ROUNDING_32, _ROUNDING_16 = 1e-5, 1e-2
"""Of a weight, which is at most 1: what arithmetic in 32 and in 16 bits may move it by."""


def check_experts(name: str, experts_NDK: Any, shape: tuple[int, int, int], experts: int) -> None:
    """Whether experts can be forced on a response's tokens.

    Args:
        name: of the response.
        experts_NDK: an integer array; None if there is none.
        shape: that it must have.
        experts: how many a layer has.

    Raises:
        RefusalError: if they are not those of such a model.
    """
    told = None if experts_NDK is None else tuple(experts_NDK.shape)
    if told != shape:
        raise RefusalError(
            f"{name} has experts of shape {told} to replay, and this model's are of {shape}: "
            "tokens, layers, experts a token",
            "give both sides one model",
        )
    in_order = np.sort(experts_NDK, axis=2)
    if in_order.size and not -1 <= in_order.min() <= in_order.max() < experts:
        strange = in_order.min() if in_order.min() < -1 else in_order.max()
        raise RefusalError(
            f"{name} has an expert {strange} to replay, and this model has {experts}",
            "give both sides one model; -1 stands for an expert that is not known",
        )
    if ((in_order[..., 1:] == in_order[..., :-1]) & (in_order[..., :-1] >= 0)).any():
        raise RefusalError(
            f"{name} has a token that was sent to one expert twice in a layer",
            "look at what the sampler tells of its experts",
        )


def forced(router: nn.Module, output: Any, given_NK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A router's answer with given experts in it, weighed by its own softmax over them.

    Where it has chosen just these, its answer stays as it is, to the bit.

    Args:
        router: that answers.
        output: its answer: logits (N, E), weights (N, K) and ids (N, K).
        given_NK: the experts; where one of a token's is -1, the router's own choice stands.

    Raises:
        RefusalError: if it answers otherwise, or weighs otherwise.
    """
    logits_NE, weights_NK, ids_NK = _softmax_answer(router, output)
    given_NK = given_NK.to(ids_NK)
    moved_N = (given_NK.sort(dim=1).values != ids_NK.sort(dim=1).values).any(dim=1)
    moved_N1 = (moved_N & (given_NK >= 0).all(dim=1))[:, None]
    ids_NK = torch.where(moved_N1, given_NK, ids_NK)
    weighed_NK = gate_weights(router, logits_NE, ids_NK).to(weights_NK.dtype)
    return logits_NE, torch.where(moved_N1, weighed_NK, weights_NK), ids_NK


def gate_weights(router: nn.Module, logits_NE: Tensor, ids_NK: Tensor) -> Tensor:
    """What a router of the softmax kind weighs given experts by, float32, shape (N, K)."""
    weights_NK = torch.softmax(logits_NE, dim=-1, dtype=torch.float32).gather(1, ids_NK.long())
    # Families without this setting take the softmax over the chosen alone, which is the same.
    if getattr(router, "norm_topk_prob", True):
        weights_NK = weights_NK / weights_NK.sum(dim=-1, keepdim=True)
    return weights_NK


def _softmax_answer(router: nn.Module, output: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A router's answer, if its weights are those that `gate_weights` gives its own choice."""
    parts = output if isinstance(output, tuple) else (output,)
    if len(parts) == 3 and all(isinstance(each, Tensor) and each.ndim == 2 for each in parts):
        logits_NE, weights_NK, ids_NK = parts
        if not ids_NK.is_floating_point() and weights_NK.shape == ids_NK.shape:
            off = (gate_weights(router, logits_NE, ids_NK) - weights_NK.float()).abs().max()
            narrow = {logits_NE.dtype, weights_NK.dtype} != {torch.float32}
            if float(off) <= (_ROUNDING_16 if narrow else _ROUNDING_32):
                return logits_NE, weights_NK, ids_NK
    raise RefusalError(
        f"experts cannot be forced on a {type(router).__name__}: it does not weigh them by a "
        "softmax of logits that it tells",
        "replay in a model whose routers do, such as Mixtral, Qwen or OLMoE",
    )
