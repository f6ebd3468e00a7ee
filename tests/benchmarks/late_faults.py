"""Faults that begin in the middle of a run: what `check` must name after a healthy start.

Each function changes a trainer before its first step. The fault is in force from step
`BEGINS_AT + 1` on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from grpodoctor.trainer.engines.quantization import fake_quantize
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.lora import merged_copy

BEGINS_AT = 60
"""Steps before the fault; the plants train 120."""


def _from_then_on(trainer: Trainer, change: Callable[[], None]) -> None:
    """Call a function once, before the first step with the fault."""
    own: Any = trainer
    problems, state = own.task.problems, {"done": False}

    def changed(*arguments: Any, **options: Any) -> Any:
        if trainer.done >= BEGINS_AT and not state["done"]:
            state["done"] = True
            change()
        return problems(*arguments, **options)

    own.task.problems = changed


def _set(trainer: Trainer, section: str, **values: Any) -> None:
    part = getattr(trainer.config, section).model_copy(update=values)
    trainer.config = trainer.config.model_copy(update={section: part})


def learning_rate_jumps(trainer: Trainer) -> None:
    """The schedule restarts with a learning rate thirty times as high."""
    rate = 30 * trainer.config.optimizer.learning_rate
    _from_then_on(trainer, lambda: _set(trainer, "optimizer", learning_rate=rate))


def learning_rate_ends(trainer: Trainer) -> None:
    """The schedule reaches zero, because it was made for half of the steps."""
    _from_then_on(trainer, lambda: _set(trainer, "optimizer", learning_rate=0.0))


def limit_drops(trainer: Trainer) -> None:
    """Responses may have eight tokens from then on."""

    def change() -> None:
        _set(trainer, "rollout", max_length=8)
        engine: Any = trainer.engine
        engine._rollout = trainer.config.rollout

    _from_then_on(trainer, change)


def evaluation_limit_drops(trainer: Trainer) -> None:
    """Responses of the evaluation alone may have eight tokens from then on."""
    _from_then_on(trainer, lambda: _set(trainer, "rollout", max_length=8))


def kl_coefficient_jumps(trainer: Trainer) -> None:
    """The KL penalty becomes a thousand times as strong."""
    coefficient = 1000 * trainer.config.loss.kl_coefficient
    _from_then_on(trainer, lambda: _set(trainer, "loss", kl_coefficient=coefficient))


def entropy_is_punished(trainer: Trainer) -> None:
    """The entropy bonus gets the wrong sign."""
    _from_then_on(trainer, lambda: _set(trainer, "loss", entropy_coefficient=-0.3))


def _delivers(trainer: Trainer, deliver: Callable[[Any, Any], Any]) -> None:
    engine: Any = trainer.engine
    sync = engine.sync

    def late(step: int) -> None:
        if trainer.done < BEGINS_AT:
            sync(step)
            return
        engine._model = deliver(engine._model, trainer.policy.model)
        engine.synced_step = engine._step = step

    engine.sync = late


def sync_stops(trainer: Trainer) -> None:
    """The sampler keeps the weights that it has, and reports every sync as done."""
    held: dict[str, Any] = {}

    def deliver(sampler: Any, _: Any) -> Any:
        return held.setdefault("model", merged_copy(sampler))

    _delivers(trainer, deliver)


def sampler_of_3_bits(trainer: Trainer) -> None:
    """The sampler is restarted with weights of three bits."""

    @torch.no_grad()
    def deliver(_: Any, learner: Any) -> Any:
        copy: Any = merged_copy(learner)
        for module in copy.modules():
            if isinstance(module, nn.Linear) and module is not copy.get_output_embeddings():
                module.weight.copy_(fake_quantize(module.weight, 3))
        return copy

    _delivers(trainer, deliver)


def _generates(trainer: Trainer, change: Callable[[list[int]], list[int]]) -> None:
    engine: Any = trainer.engine
    generate = engine.generate

    def late(prompts: Sequence[Sequence[int]], *arguments: Any, **options: Any) -> Any:
        if trainer.done >= BEGINS_AT:
            prompts = [change(list(prompt)) for prompt in prompts]
        return generate(prompts, *arguments, **options)

    engine.generate = late


def prompts_cut(trainer: Trainer) -> None:
    """Prompts lose their first half: another limit of the prompt's length."""
    _generates(trainer, lambda prompt: prompt[len(prompt) // 2 :])


def prompts_gain_tokens(trainer: Trainer) -> None:
    """Foreign tokens precede every prompt: another chat template."""
    _generates(trainer, lambda prompt: [5, 9, 5, 9, 5, 9, *prompt])


def _scores(trainer: Trainer, change: Callable[[Any], Any]) -> None:
    task: Any = trainer.task
    score = task.score

    def late(*arguments: Any, **options: Any) -> Any:
        rewards = score(*arguments, **options)
        return change(rewards) if trainer.done >= BEGINS_AT else rewards

    task.score = late


def answers_misaligned(trainer: Trainer) -> None:
    """Each response is scored by the answer to another prompt of the batch."""
    group = trainer.config.rollout.group_size

    def rolled(values: Any) -> Any:
        return None if values is None else [*values[group:], *values[:group]]

    def change(rewards: Any) -> Any:
        wrong = [0.0 if place % 3 else value for place, value in enumerate(rolled(rewards.total))]
        components = {name: list(wrong) for name in rewards.components}
        return replace(rewards, total=wrong, components=components, correct=None)

    _scores(trainer, change)


def judge_accepts_all(trainer: Trainer) -> None:
    """The judge accepts every response; the task's own verification is still logged."""

    def change(rewards: Any) -> Any:
        full = [1.0] * len(rewards.total)
        return replace(rewards, total=full, components=dict.fromkeys(rewards.components, full))

    _scores(trainer, change)


def one_reward_is_nan(trainer: Trainer) -> None:
    """One response of each batch gets NaN."""

    def change(rewards: Any) -> Any:
        return replace(rewards, total=[float("nan"), *rewards.total[1:]])

    _scores(trainer, change)


def advantages_flip(trainer: Trainer) -> None:
    """The advantages get the wrong sign."""
    own: Any = trainer
    learn_batch = own._learn_batch

    def late(rollouts: Any, scores: Any) -> Any:
        batch = learn_batch(rollouts, scores)
        sign = -1 if trainer.done >= BEGINS_AT else 1
        return replace(batch, advantages_BT=sign * batch.advantages_BT)

    own._learn_batch = late


def gradients_grow(trainer: Trainer) -> None:
    """Gradients are a thousand times too large and not clipped: a lost division by the batch."""

    def change() -> None:
        _set(trainer, "optimizer", max_grad_norm=0.0)
        for weight in trainer.learner.parameters:
            weight.register_hook(lambda grad: 1000 * grad)

    _from_then_on(trainer, change)


def gradients_vanish(trainer: Trainer) -> None:
    """No gradient reaches the weights: a detached tensor."""

    def change() -> None:
        for weight in trainer.learner.parameters:
            weight.register_hook(torch.zeros_like)

    _from_then_on(trainer, change)


_OFF_POLICY = ("MIS001", "MIS003", "MIS004", "SYN001", "SYN002", "SYN003", "SYN004", "SYN008")
_TOO_FAR = ("OPT006", "CLP001", "KLD001", "OPT002", "OPT004", "REW002", "REW014")
_FALL = ("REW002", "REW014", "GRP002", "REW004")

LATE_FAULTS: dict[str, tuple[str, ...]] = {
    "learning_rate_jumps": (*_TOO_FAR, "CFG050"),
    "learning_rate_ends": ("OPT005", "CFG051", "OPT001", "REW001"),
    "limit_drops": ("LEN002", "LEN003", "CFG025"),
    "evaluation_limit_drops": ("REW003", "REW008", "LEN002"),
    "kl_coefficient_jumps": ("CFG043", "KLD002", "OPT002", "OPT004", "REW001"),
    "entropy_is_punished": ("ENT001", "CFG056", "CFG060", "ENT003"),
    "sync_stops": _OFF_POLICY,
    "sampler_of_3_bits": _OFF_POLICY,
    "prompts_cut": _FALL,
    "prompts_gain_tokens": _FALL,
    "answers_misaligned": _FALL,
    "judge_accepts_all": ("REW004", "REW005", "GRP004", "REW003", "REW008"),
    "one_reward_is_nan": ("OPT003", "REW004", "OPT001"),
    "advantages_flip": _FALL,
    "gradients_grow": _TOO_FAR,
    "gradients_vanish": ("OPT001", "OPT005"),
}
"""Codes that name each fault, written down before any rule saw a run of it, except those of
`evaluation_limit_drops`, which was made by mistake first."""
