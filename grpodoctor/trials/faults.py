"""Faults that are injected into the bundled trainer before its first step.

Each function changes a trainer once. None of them changes the recording: the log shows what the
run believes about itself.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from grpodoctor.trainer.data.tasks.registry import TASKS
from grpodoctor.trainer.engines.quantization import fake_quantize
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.lora import merged_copy
from grpodoctor.trials import environments


def with_changed_result(
    method: Callable[..., Any], change: Callable[[Any], Any]
) -> Callable[..., Any]:
    """A method whose result is changed."""

    @functools.wraps(method)
    def changed(*arguments: Any, **options: Any) -> Any:
        return change(method(*arguments, **options))

    return changed


def sync_by(trainer: Trainer, deliver: Callable[[Any, Any], Any]) -> None:
    """Replace the sync by `deliver(sampler, learner)`; the engine reports every sync as done."""
    engine: Any = trainer.engine
    engine._model = merged_copy(trainer.policy.model)

    def sync(step: int) -> None:
        engine._model = deliver(engine._model, trainer.policy.model)
        engine.synced_step = engine._step = step

    engine.sync = sync


def weights_never_delivered(trainer: Trainer) -> None:
    """The sampler keeps the weights of the start."""
    sync_by(trainer, lambda sampler, _: sampler)


def noisy_sampler(trainer: Trainer) -> None:
    """The sampler's weights have 20 % noise: another build, a damaged kernel."""

    @torch.no_grad()
    def deliver(_: Any, learner: Any) -> Any:
        copy = merged_copy(learner)
        for weight in copy.parameters():
            weight.mul_(1 + 0.2 * torch.randn_like(weight))
        return copy

    sync_by(trainer, deliver)


def sampler_of_3_bits(trainer: Trainer) -> None:
    """The sampler has weights of three bits."""

    @torch.no_grad()
    def deliver(_: Any, learner: Any) -> Any:
        copy: Any = merged_copy(learner)
        for module in copy.modules():
            if isinstance(module, nn.Linear) and module is not copy.get_output_embeddings():
                module.weight.copy_(fake_quantize(module.weight, 3))
        return copy

    sync_by(trainer, deliver)


def sampler_of_float16(trainer: Trainer) -> None:
    """The sampler stores its weights and computes in float16."""

    def deliver(_: Any, learner: Any) -> Any:
        copy: Any = merged_copy(learner)
        return copy.half()

    sync_by(trainer, deliver)


def half_easier_prompts(trainer: Trainer) -> None:
    """Half of the training prompts are of the default difficulty: no fault, but a remedy.

    The held-out prompts stay those of the run.
    """
    settings = trainer.config.task
    default = type(settings).model_fields["difficulty"].default
    easier = TASKS[settings.name](settings.model_copy(update={"difficulty": default}))
    rng = random.Random(trainer.config.seed)  # noqa: S311 - training problems, no secret
    task: Any = trainer.task

    def mixed(problems: Any) -> Any:
        kept = len(problems) // 2
        return [*problems[:kept], *easier.problems(rng, len(problems) - kept)]

    task.problems = with_changed_result(task.problems, mixed)


def shifted_logprobs(trainer: Trainer) -> None:
    """The sampler's log-probabilities belong to the next token."""
    engine: Any = trainer.engine

    def shifted(samples: Any) -> Any:
        rolled_BT = samples.logprobs_BT.roll(-1, dims=1)
        return replace(samples, logprobs_BT=torch.where(samples.mask_BT, rolled_BT, 0.0))

    engine.generate = with_changed_result(engine.generate, shifted)


def tool_tokens_in_loss(trainer: Trainer) -> None:
    """The mask that leaves the results of tools out of the loss is lost."""
    own: Any = trainer

    def unmasked(rollouts: Any, scores: Any) -> Any:
        batch = learn_batch(rollouts, scores)
        tools_BT = environments.tool_tokens(trainer, rollouts.samples)
        return replace(batch, loss_mask_BT=batch.loss_mask_BT | tools_BT)

    learn_batch, own._learn_batch = own._learn_batch, unmasked
