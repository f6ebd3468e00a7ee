"""AdamW as policy and critic use it: how it is made, and one guarded step of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from grpodoctor.trainer.config.sections import OptimizerConfig
from grpodoctor.trainer.distributed.sharding import full_tensor


def build_adamw(
    parameters: Sequence[nn.Parameter], config: OptimizerConfig, learning_rate: float
) -> torch.optim.AdamW:
    """AdamW over some parameters.

    Args:
        parameters: what it moves.
        config: its moments and weight decay.
        learning_rate: of its first step.
    """
    return torch.optim.AdamW(
        parameters,
        lr=learning_rate,
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
        fused=True,
    )


def take_step(
    optimizer: torch.optim.AdamW, loss: float, max_norm: float, learning_rate: float
) -> tuple[float, bool]:
    """Step by the gradients that are there, and drop them.

    Args:
        optimizer: whose parameters hold gradients.
        loss: that they belong to; without a step if it is not finite, or the gradient is not.
        max_norm: the gradient is scaled down to it.
        learning_rate: of this step.

    Returns:
        The norm of the gradient before it was scaled, and whether the step was taken.
    """
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    norm = float(full_tensor(nn.utils.clip_grad_norm_(parameters, max_norm)))
    applied = math.isfinite(loss) and math.isfinite(norm)
    if applied:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm, applied
