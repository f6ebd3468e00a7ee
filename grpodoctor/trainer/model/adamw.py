"""AdamW for policy and critic: how it is built, and a step that skips non-finite gradients."""

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
    """Build AdamW."""
    return torch.optim.AdamW(
        parameters,
        lr=learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def scheduled_rate(config: OptimizerConfig, done: int, total: int) -> float:
    """The learning rate after `done` of `total` steps: linear warmup, then the schedule.

    The final rate is that after the last step, so no step is lost to a rate of zero.
    """
    peak, final = config.learning_rate, config.final_learning_rate
    if done < config.warmup_steps or config.schedule == "constant":
        return peak * min(1.0, (done + 1) / (config.warmup_steps + 1))
    progress = min(1.0, (done - config.warmup_steps) / max(1, total - config.warmup_steps))
    if config.schedule == "cosine":
        progress = (1 - math.cos(math.pi * progress)) / 2
    return peak + (final - peak) * progress


def take_step(
    optimizer: torch.optim.AdamW, loss: float, max_norm: float, learning_rate: float
) -> tuple[float, bool]:
    """Take an optimizer step with the current gradients, and clear them.

    The step is skipped if the loss or the gradient is not finite.

    Args:
        optimizer: the optimizer; its parameters hold gradients.
        loss: the loss of the gradients.
        max_norm: the gradient is clipped to this norm.
        learning_rate: learning rate of this step.

    Returns:
        The gradient norm before clipping, and whether the step was taken.
    """
    parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
    norm = float(full_tensor(nn.utils.clip_grad_norm_(parameters, max_norm)))
    applied = math.isfinite(loss) and math.isfinite(norm)
    if applied:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm, applied
