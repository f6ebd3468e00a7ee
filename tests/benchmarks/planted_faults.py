"""Faults of the bundled trainer that only the planted causes need; see `planted_causes.py`.

Each function changes a trainer once, before its first step, as those of `grpodoctor.trials.faults`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.lora import merged_copy
from grpodoctor.trainer.model.policy import Policy, load_policy
from grpodoctor.trainer.model.reference import Reference
from grpodoctor.trials.faults import sync_by, with_changed_result

DIES_AT = 50
"""Step from which a fault that begins late is in force."""


def weights_delivered_late(trainer: Trainer) -> None:
    """The sampler receives the weights of eight steps ago."""
    queue: deque[Any] = deque(maxlen=8)

    def deliver(_: Any, learner: Any) -> Any:
        queue.append(merged_copy(learner))
        return queue[0]

    sync_by(trainer, deliver)


def weights_half_delivered(trainer: Trainer) -> None:
    """The sampler receives the first layer only."""

    @torch.no_grad()
    def deliver(sampler: Any, learner: Any) -> Any:
        current = dict(learner.named_parameters())
        for name, weight in sampler.named_parameters():
            if ".layers.0." in name:
                weight.copy_(current[name])
        return sampler

    sync_by(trainer, deliver)


def bfloat16_weights(trainer: Trainer) -> None:
    """Round the weights to bfloat16 after every update, as a model without master weights."""

    @torch.no_grad()
    def rounded(update: Any) -> Any:
        for weight in trainer.learner.parameters:
            weight.copy_(weight.bfloat16().float())
        return update

    rounded(None)
    trainer.learner.update = with_changed_result(trainer.learner.update, rounded)  # type: ignore[method-assign]


def reward_dies(trainer: Trainer) -> None:
    """From step 50 on every response earns nothing, as with a judge that is down."""
    task: Any = trainer.task

    def dead(rewards: Any) -> Any:
        if trainer.done < DIES_AT:
            return rewards
        nothing = [0.0] * len(rewards.total)
        components = {name: list(nothing) for name in rewards.components}
        correct = None if rewards.correct is None else [False] * len(nothing)
        return replace(rewards, total=nothing, components=components, correct=correct)

    task.score = with_changed_result(task.score, dead)


def weights_become_nan(trainer: Trainer) -> None:
    """One weight becomes NaN at step 50."""

    @torch.no_grad()
    def broken(update: Any) -> Any:
        if trainer.done == DIES_AT:
            trainer.learner.parameters[-1].view(-1)[0] = float("nan")
        return update

    trainer.learner.update = with_changed_result(trainer.learner.update, broken)  # type: ignore[method-assign]


class _WithoutEnd:
    """A tokenizer that knows no end token."""

    end_ids: frozenset[int] = frozenset()

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def end_token_ignored(trainer: Trainer) -> None:
    """The sampler has the wrong stop token, so it goes on to the limit."""
    engine: Any = trainer.engine
    policy = trainer.policy
    engine._policy = Policy(policy.model, _WithoutEnd(policy.tokenizer), policy.name)


def wrong_template(trainer: Trainer) -> None:
    """Six foreign tokens precede every prompt, in the sampler and in the learner."""
    engine: Any = trainer.engine
    generate = engine.generate

    def garbled(prompts: Sequence[Sequence[int]], *arguments: Any, **options: Any) -> Any:
        return generate([[5, 9, 5, 9, 5, 9, *prompt] for prompt in prompts], *arguments, **options)

    engine.generate = garbled


def same_prompt(trainer: Trainer) -> None:
    """Every prompt of a batch is the same: a broken sampler of the data set."""
    task: Any = trainer.task
    task.problems = with_changed_result(
        task.problems, lambda problems: [problems[0]] * len(problems)
    )


def _with_advantages(trainer: Trainer, change: Callable[[Any, Tensor], Tensor]) -> None:
    own: Any = trainer
    learn_batch = own._learn_batch

    def changed(rollouts: Any, scores: Any) -> Any:
        batch = learn_batch(rollouts, scores)
        return replace(batch, advantages_BT=change(rollouts, batch.advantages_BT))

    own._learn_batch = changed


def flipped_advantages(trainer: Trainer) -> None:
    """Train with the wrong sign of the advantage."""
    _with_advantages(trainer, lambda _, advantages_BT: -advantages_BT)


def raw_rewards(trainer: Trainer) -> None:
    """Train on the reward itself, without a baseline and without a division."""

    def raw(rollouts: Any, advantages_BT: Tensor) -> Tensor:
        totals_B: Tensor = rollouts.totals()
        return totals_B.float()[:, None].expand_as(advantages_BT)

    _with_advantages(trainer, raw)


def shuffled_advantages(trainer: Trainer) -> None:
    """Give each response the advantage of another one: rows out of order after a gather."""

    def shuffled(_: Any, advantages_BT: Tensor) -> Tensor:
        return advantages_BT.roll(1, dims=0)

    _with_advantages(trainer, shuffled)


def dropout_in_scores(trainer: Trainer) -> None:
    """Dropout of 10 % in every pass of the learner, but not in the sampler."""
    active = {"on": False}

    def dropped(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        return nn.functional.dropout(output, 0.1) if active["on"] else output

    for name, module in trainer.policy.model.named_modules():
        if name.endswith("down_proj"):
            module.register_forward_hook(dropped)

    def switched_on(method: Callable[..., Any]) -> Callable[..., Any]:
        def with_dropout(*arguments: Any, **options: Any) -> Any:
            active["on"] = True
            try:
                return method(*arguments, **options)
            finally:
                active["on"] = False

        return with_dropout

    own: Any = trainer
    own._score = switched_on(own._score)
    own.learner.update = switched_on(own.learner.update)


def other_reference(trainer: Trainer) -> None:
    """The KL is measured to a model of another, shorter warm start."""
    model = trainer.config.model.model_copy(update={"warm_start_steps": 300})
    config = trainer.config.model_copy(update={"model": model})
    task: Any = trainer.task
    trainer.reference = Reference(trainer.policy, lambda: load_policy(config, task), trainer.ranks)
    trainer.reference.prepare()


def kl_pushes_away(trainer: Trainer) -> None:
    """The KL penalty has the wrong sign, so it rewards distance from the reference."""
    loss = trainer.config.loss
    wrong = loss.model_copy(update={"kl_coefficient": -loss.kl_coefficient})
    trainer.config = trainer.config.model_copy(update={"loss": wrong})


def optimizer_state_lost(trainer: Trainer) -> None:
    """From step 50 on AdamW loses its state before every batch, as after a bad resume."""

    def lost(readings: Any) -> Any:
        if trainer.done >= DIES_AT:
            trainer.learner.optimizer.state.clear()
        return readings

    own: Any = trainer
    own._evaluate_and_record = with_changed_result(own._evaluate_and_record, lost)
