"""Router faults that are injected into a training run between its steps.

Each function is called with the trainer after every step. None of them changes the recording.
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
    """Scale every router's logits by 1.03 per step: its choices stay, its entropy falls."""
    for gate in _gates(trainer):
        gate.weight.mul_(1.03)


def overloaded(trainer: Trainer) -> None:
    """Increase a bias of each router's first expert at every step, like a wrong load balancing."""
    for gate in _gates(trainer):
        if not hasattr(gate, "first_expert_bias"):
            gate.first_expert_bias = 0.0
            gate.register_forward_hook(_biased)
        gate.first_expert_bias += 0.1


def _biased(
    gate: Any, _arguments: tuple[Tensor, ...], output: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    logits_NE, weights_NK, ids_NK = output
    bias_E = torch.zeros(logits_NE.shape[1])
    bias_E[0] = gate.first_expert_bias
    biased_NE = logits_NE + bias_E
    chosen_NK = biased_NE.topk(ids_NK.shape[1], dim=-1).indices
    return biased_NE, gate_weights(biased_NE, chosen_NK, True).to(weights_NK.dtype), chosen_NK


def lost_routes(trainer: Trainer) -> None:
    """Drop the routes of every tenth response, as a preempted request does."""
    engine: Any = trainer.engine
    if hasattr(engine, "loses_routes"):
        return
    engine.loses_routes, generate = True, engine.generate

    def generate_with_losses(*arguments: Any, **options: Any) -> Any:
        samples = generate(*arguments, **options)
        if samples.experts_BLDK is not None:
            samples.experts_BLDK[::10] = -1
        return samples

    engine.generate = generate_with_losses


def ignored_routes(trainer: Trainer) -> None:
    """Make the second layer use the neighbors of the replayed experts."""
    modules = trainer.policy.model.named_modules()
    layer = [module for name, module in modules if name.endswith("mlp.experts")][1]
    if not hasattr(layer, "ignores_routes"):
        layer.ignores_routes = True
        layer.register_forward_pre_hook(_use_next_experts)


def _use_next_experts(_layer: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    hidden, ids_NK, weights_NK = arguments
    return hidden, (ids_NK + 1) % 8, weights_NK
