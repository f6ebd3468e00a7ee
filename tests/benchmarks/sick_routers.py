"""Diseases of routers, planted into a training run between its steps.

Each is called with the trainer after every step. None of them touches what the run records.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.moe.routers import gate_weights


def _gates(trainer: Trainer) -> list[nn.Module]:
    modules = trainer.policy.model.named_modules()
    return [module for name, module in modules if name.endswith("mlp.gate")]


@torch.no_grad()
def sharpened(trainer: Trainer) -> None:
    """Every router's logits grow by 3 % a step: its choices stay, its doubt goes."""
    for gate in _gates(trainer):
        gate.weight.mul_(1.03)


def overloaded(trainer: Trainer) -> None:
    """A bias of each router's first expert grows with every step: a balancing gone wrong."""
    for gate in _gates(trainer):
        if not hasattr(gate, "bias_of_first"):
            gate.bias_of_first = 0.0
            gate.register_forward_hook(_biased)
        gate.bias_of_first += 0.1


def _biased(
    gate: Any, _arguments: tuple[Tensor, ...], output: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    logits_NE, weights_NK, ids_NK = output
    bias_E = torch.zeros(logits_NE.shape[1])
    bias_E[0] = gate.bias_of_first
    biased_NE = logits_NE + bias_E
    chosen_NK = biased_NE.topk(ids_NK.shape[1], dim=-1).indices
    return biased_NE, gate_weights(biased_NE, chosen_NK, True).to(weights_NK.dtype), chosen_NK


def unheard(trainer: Trainer) -> None:
    """The engine loses the routes of every tenth response, as a preempted request does."""
    engine: Any = trainer.engine
    if hasattr(engine, "loses_routes"):
        return
    engine.loses_routes, whole = True, engine.generate

    def lossy(*arguments: Any, **options: Any) -> Any:
        samples = whole(*arguments, **options)
        if samples.experts_BLDK is not None:
            samples.experts_BLDK[::10] = -1
        return samples

    engine.generate = lossy


def disobedient(trainer: Trainer) -> None:
    """The second layer sends each token to the neighbours of the experts that it was told."""
    layer = [m for name, m in trainer.policy.model.named_modules() if name.endswith("mlp.experts")][
        1
    ]
    if not hasattr(layer, "disobeys"):
        layer.disobeys = True
        layer.register_forward_pre_hook(_next_experts)


def _next_experts(_layer: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    hidden, ids_NK, weights_NK = arguments
    return hidden, (ids_NK + 1) % 8, weights_NK
