"""Recording with every token: the taps of `private_names` together with the callbacks."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from grpodoctor.frameworks.rollout_formats.columns import clean, text_of
from grpodoctor.hooks.run_hook import RunHook
from grpodoctor.hooks.trl import private_names
from grpodoctor.hooks.trl.captured import (
    CapturedStep,
    Generation,
    LossSettings,
    MicroBatch,
    Rewards,
    Update,
    kept_tensors,
)
from grpodoctor.hooks.trl.delivery_check import DeliveryCheck
from grpodoctor.hooks.trl.live_knobs import add_knobs
from grpodoctor.hooks.trl.log_listener import LogListener, is_evaluation
from grpodoctor.hooks.trl.step_batches import step_batch
from grpodoctor.vocabulary.values import Mean, Reading

_MOST_GENERATIONS = 8
"""Generations that are joined to one step if they never end together with an optimizer step."""
_FROM_METRICS = ("tools/", "experts/", "optimizer/entropy_coefficient")
"""Metrics that come from TRL's own values, because no tensor of the taps contains them."""


class TapListener(LogListener):
    """Records a step for each rollout batch, with every token.

    A step begins with a generation and ends with the last optimizer step on it. Its number is the
    trainer's counter after that optimizer step, as in TRL's log.

    Args:
        hook: the recorder.
        trainer: the trainer; its methods are observed from now on.
    """

    def __init__(self, hook: RunHook, trainer: Any) -> None:
        super().__init__(hook)
        self._trainer = trainer
        self._delivery = DeliveryCheck(trainer)
        self._step = CapturedStep()
        self._open: list[MicroBatch] = []
        """Micro-batches since the last optimizer step."""
        self._rewards: Rewards | None = None
        self._scores: tuple[Any, Any] | None = None
        self._grad_norm: Any = None
        self._began = 0.0
        self._is_complete = True
        """Whether every generation of the step came with its rewards."""
        self._read: dict[str, int] = {}
        """The number of TRL's values, by key, that were collected."""
        self._values: defaultdict[str, list[float]] = defaultdict(list)
        self._install()

    def _install(self) -> None:
        trainer, guard = self._trainer, self._hook.guard
        private_names.observe_generation(trainer, guard, self._before_sampling, self._generated)
        private_names.observe_rewards(trainer, guard, self._rewarded)
        private_names.observe_scores(trainer, guard, self._scored)
        private_names.observe_loss(trainer, guard, self._learned)
        private_names.observe_gradient_norm(trainer, guard, self._measured_gradient)

    def train_begin(self, args: Any, state: Any, objects: dict[str, Any]) -> None:
        """Forget a generation of an earlier training, and begin the run."""
        self._step, self._open, self._is_complete = CapturedStep(), [], True
        super().train_begin(args, state, objects)

    def add_knobs(self, args: Any, objects: dict[str, Any]) -> None:
        """Register what can change in place."""
        super().add_knobs(args, objects)
        add_knobs(self._hook.knobs, self._trainer)

    # Taps

    def _before_sampling(self) -> None:
        if not private_names.is_training(self._trainer):
            return
        if self._step.generations and not self._open and self._step.updates:
            self._record()  # the steps of the data loader ended early
        self._hook.begin_step(self._trainer.state.global_step + 1)
        self._rewards = None
        self._began = time.perf_counter()

    def _rewarded(
        self,
        per_function: Any,
        inputs: Any,  # noqa: ARG002 - TRL's signature
        prompts: list[Any],
        completions: list[Any],
        completion_ids_list: list[list[int]],
    ) -> None:
        if not private_names.is_training(self._trainer):
            return
        self._rewards = Rewards(
            names=[clean(str(name)) for name in self._trainer.reward_func_names],
            per_function=per_function.detach(),
            weights=self._trainer.reward_weights.detach().clone(),
            prompts=[clean(text_of(prompt)) for prompt in prompts],
            texts=[clean(text_of(completion)) for completion in completions],
            token_ids=[list(ids) for ids in completion_ids_list],
        )

    def _generated(self, batch: Mapping[str, Any], inputs: Any) -> None:
        trainer = self._trainer
        if not private_names.is_training(trainer):
            return
        if self._rewards is None:
            self._is_complete = False
            return
        self._step.generations.append(
            Generation(
                tensors=kept_tensors(batch),
                group_size=trainer.num_generations,
                first_row=trainer.accelerator.process_index * len(inputs),
                end_ids=private_names.end_ids(trainer),
                masks_truncated=bool(trainer.mask_truncated_completions),
                leaves_out_unscored=private_names.leaves_out_unscored(),
                rewards=self._rewards,
                seconds=time.perf_counter() - self._began,
                prompts_are_whole=not private_names.has_hidden_task(
                    batch, {"environments": getattr(trainer, "environments", None)}, *inputs[:1]
                ),
            )
        )
        self._hook.guard.run("weight delivery", self._check_delivery, batch, self._rewards)

    def _check_delivery(self, batch: Mapping[str, Any], rewards: Rewards) -> None:
        """On rank 0: whether the engine has the weights of the latest sync."""
        if self._hook.rank or not self._delivery.is_due(batch):
            return
        if reason := self._delivery.obstacle(batch):
            self._hook.missing("whether the weights reach the engine", reason)
            return
        for name, reading in self._delivery.readings(batch, rewards.token_ids).items():
            self._hook.reading(name, reading)

    def _scored(self, scores: tuple[Any, ...], *_: Any, **__: Any) -> None:
        logprobs, entropies = scores[:2]
        self._scores = (logprobs.detach(), None if entropies is None else entropies.detach())

    def _learned(self, loss: Any, model: Any, inputs: Mapping[str, Any]) -> None:  # noqa: ARG002 - TRL's signature
        scores, self._scores = self._scores, None
        if scores is None or not self._step.generations:
            return
        if not private_names.is_training(self._trainer):
            return
        self._open.append(
            MicroBatch(
                generation=len(self._step.generations) - 1,
                tensors=kept_tensors(inputs),
                logprobs=scores[0],
                entropies=scores[1],
                loss=loss.detach().clone(),
            )
        )

    def _measured_gradient(self, norm: Any, *_: Any, **__: Any) -> None:
        self._grad_norm = norm.detach() if hasattr(norm, "detach") else norm

    # Events

    def step_begin(self, state: Any) -> None:
        """Requests are put in force before each generation instead."""

    def before_update(self, objects: dict[str, Any]) -> None:
        """Close the update: its weights are about to change."""
        groups = getattr(objects.get("optimizer"), "param_groups", None)
        rate = float(groups[0]["lr"]) if groups else None
        settings = _loss_settings(self._trainer)
        self._step.updates.append(Update(self._open, settings, rate, self._grad_norm))
        self._open, self._grad_norm = [], None

    def step_end(self, state: Any) -> None:
        """Record, if the next micro-batch begins with a generation."""
        self._hook.guard.run("values of TRL", self._collect_metrics)
        is_long = len(self._step.generations) >= _MOST_GENERATIONS
        if private_names.generates_next(self._trainer) or is_long:
            self._record(state.global_step)

    def _record(self, number: int | None = None) -> None:
        captured, self._step, self._open = self._step, CapturedStep(), []
        is_complete, self._is_complete = self._is_complete, True
        step = self._trainer.state.global_step if number is None else number
        own = self._hook.guard.run("values of TRL", self._trl_readings) or {}
        batch = None
        if captured.generations and is_complete:
            batch = self._hook.guard.run("tokens", step_batch, captured, step, self._hook.rank)
        if batch is None:
            self._hook.end_step(step, own)
            return
        for name, reading in own.items():
            if name.startswith(_FROM_METRICS):
                self._hook.reading(name, reading)
        self._hook.end_step(step, batch)

    def _collect_metrics(self) -> None:
        """Keep TRL's values of an optimizer step: a log in the middle of a step clears them."""
        for key, values in private_names.training_metrics(self._trainer).items():
            read = self._read.get(key, 0)
            self._values[key].extend(values[read if read <= len(values) else 0 :])
            self._read[key] = len(values)

    def _trl_readings(self) -> dict[str, Reading]:
        """TRL's own values of this step, averaged as TRL does at each log."""
        collected, self._values = self._values, defaultdict(list)
        row = {}
        for key, values in collected.items():
            if known := [value for value in values if not math.isnan(value)]:
                row[key] = sum(known) / len(known)
                if key == "step_time":
                    self._hook.reading("time/step", Mean.of_number(sum(known)))
        return self.readings(row)

    def log(self, state: Any, row: dict[str, Any]) -> None:  # noqa: ARG002 - as in the base class
        """Only evaluations are read from the log; TRL clears its metrics afterwards."""
        if not is_evaluation(row):
            self._read = {}
        else:
            for name, reading in self.readings(row).items():
                self._hook.reading(name, reading)

    def train_end(self) -> None:
        """Record what is complete, and close the run."""
        if self._step.updates:
            self._hook.guard.run("last step", self._record)
        super().train_end()


def _loss_settings(trainer: Any) -> LossSettings:
    delta = getattr(trainer.args, "delta", None)
    return LossSettings(
        loss_type=str(trainer.loss_type),
        level=str(trainer.importance_sampling_level),
        low=float(trainer.epsilon_low),
        high=float(trainer.epsilon_high),
        dual=None if delta is None else float(delta),
        mode=str(trainer.vllm_importance_sampling_mode),
    )
