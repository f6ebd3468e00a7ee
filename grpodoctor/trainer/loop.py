"""GRPO from top to bottom.

Simplifications that keep the loop short enough to read in one sitting:

- The learner and the sampling engine take turns. With several processes (`Ranks`), each runs the
  same loop on its share of the rows; the gathered result is what one process would have computed.
- A response is one action with one advantage, unless a critic gives each token its own.
- Prompts are drawn when they are needed. Sampling never runs ahead of learning.
- Dropout stays off, so that the importance ratio of the first update is one.
- All responses to a prompt are in the same mini-batch.
- Randomness is derived from the seed and the step number, so that a resumed run repeats the
  original one.

A step: requests, engine sync, sampling, rewards, scores, advantages, updates (of the critic too if
there is one), evaluation, recording.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from grpodoctor.errors import ConfigError, GrpodoctorError, RunError
from grpodoctor.trainer.algorithms.batches import LearnBatch, Update, mini_batches
from grpodoctor.trainer.algorithms.entropy_controller import EntropyController
from grpodoctor.trainer.algorithms.passes import Passes, passes_over
from grpodoctor.trainer.algorithms.positive_nll import require_correctness
from grpodoctor.trainer.algorithms.prompt_history import PromptHistory
from grpodoctor.trainer.algorithms.registry import remembers_prompts
from grpodoctor.trainer.allocator import keep_freed_memory
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.data.pass_rates import filtered_by_difficulty
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.distributed.sharding import gather_weights, scatter_weights, shard
from grpodoctor.trainer.engines.rollout_engine import build_engine
from grpodoctor.trainer.evaluate import evaluate
from grpodoctor.trainer.expert_readings import (
    ExpertMeasurement,
    constant_expert_readings,
    measure_experts,
    replay_rates,
    routers_for_training,
)
from grpodoctor.trainer.learn_batch import build_learn_batch, experts_to_replay
from grpodoctor.trainer.learner import Learner
from grpodoctor.trainer.model import checkpoint
from grpodoctor.trainer.model.adamw import scheduled_rate
from grpodoctor.trainer.model.critic import ADVANTAGE, Critic
from grpodoctor.trainer.model.forward_scores import ForwardOutput
from grpodoctor.trainer.model.policy import load_policy_on_ranks
from grpodoctor.trainer.model.reference import Reference
from grpodoctor.trainer.model.scoring import Scores, score_on_ranks
from grpodoctor.trainer.out_of_memory import explain_out_of_memory
from grpodoctor.trainer.recording import RunRecording, TrainingStep
from grpodoctor.trainer.request_handler import handle_request, naming_checkpoint
from grpodoctor.trainer.rollout import RolloutGroups, collect
from grpodoctor.trainer.samples import Samples
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Mean, Reading, scalar

_log = logging.getLogger("grpodoctor")

_NO_VARIED_GROUP = (
    "no update: all responses of each group have the same reward, and rollout.filter_groups leaves "
    "such groups out"
)


class _RandomStream(IntEnum):
    """Independent streams of random numbers, by purpose."""

    PROMPTS = 0
    SAMPLING = 1
    SHUFFLING = 2
    EVALUATION = 3
    CRITIC = 4
    TOKEN_CHOICE = 5


@dataclass(frozen=True, slots=True)
class StepReport:
    """The figures of a progress line."""

    step: int
    reward: float
    accuracy: float | None
    """Accuracy of the rollouts; None if the task cannot tell right from wrong."""
    heldout: float | None
    """Held-out accuracy, or held-out reward if the task cannot tell right from wrong; None at steps
    without evaluation."""
    entropy: float
    seconds: float


class Trainer:
    """A training run in a directory.

    Args:
        config: the configuration; it determines every number of the run.
        run_dir: directory of the records and checkpoints.
        resume: continue from the newest checkpoint in the directory.
        ranks: the processes that train together. Each has a trainer; only the first one writes.

    Raises:
        InputError: if the model, the task or the directory cannot be used.
    """

    def __init__(
        self,
        config: TrainConfig,
        run_dir: Path,
        *,
        resume: bool = False,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        keep_freed_memory()
        if config.threads:
            torch.set_num_threads(config.threads)
        if not resume:
            ranks.run_first(lambda: checkpoint.refuse_existing_run(run_dir))
        self.config, self.run_dir, self.ranks = config, run_dir, ranks
        task = ranks.run_all(lambda: build_task(config.task))
        self.task = filtered_by_difficulty(task, config.difficulty)
        self.policy = load_policy_on_ranks(config, task, ranks)
        self.learner = Learner(shard(self.policy.model, ranks), config.optimizer, ranks)
        self.critic = (
            Critic(self.policy.model, config, ranks) if config.advantage.kind == ADVANTAGE else None
        )
        self.engine = ranks.run_all(lambda: build_engine(config, self.policy, ranks))
        self.entropy, self.history = EntropyController(), PromptHistory()
        self.done = 0
        """Number of completed steps."""
        self._heldout: float | None = None
        if resume:
            self.done = checkpoint.restore(run_dir, self._state, ranks)
            scatter_weights(self.policy.model, self.learner.model)
        else:
            ranks.run_all(lambda: self.engine.sync(1))
        self.reference = Reference(
            self.policy, lambda: load_policy_on_ranks(self.config, task, ranks), ranks
        )
        self._prepare(config)
        self.recording = ranks.run_all(
            lambda: RunRecording(config, self.policy, run_dir, resume=resume, ranks=ranks)
        )
        self._constant_readings = constant_expert_readings(self.policy.model)
        self._stopping = False
        self._mid_step = False
        """Whether some updates of the current step are in the weights; no checkpoint is written."""
        self._saved_at = self.done
        self._save_failed = False

    def run(self, on_step: Callable[[StepReport], None] | None = None) -> None:
        """Train until the configured number of steps is done or `stop` is called.

        Before an error is raised, a checkpoint of the last completed step is written, unless the
        weights already contain some updates of the next step.

        Raises:
            DataError: if the user's data or reward function fails.
            OutOfMemoryError: if a step does not fit into memory.
        """
        try:
            while self.done < self.config.steps and not self.ranks.any(self._stopping):
                report = self.train_step()
                self._heldout = self._heldout if report.heldout is None else report.heldout
                if self.config.checkpoint.every and self.done % self.config.checkpoint.every == 0:
                    self._save()
                if on_step:
                    on_step(report)
            self._save()
        except Exception as error:
            if not self._mid_step and not self.ranks.is_local_error(error):
                self._save()
            self.recording.event("warning", self.done, {"message": f"training ended: {error}"})
            raise
        else:
            self.recording.close(finished=True)
        finally:
            self.recording.close(finished=False)
            self.engine.close()
            self.task.close()

    @property
    def is_saved(self) -> bool:
        """Whether a checkpoint holds the latest step, or no step has been taken."""
        return self._saved_at == self.done

    def stop(self) -> None:
        """End after the current step with a checkpoint; safe to call from a signal handler."""
        self._stopping = True

    def train_step(self) -> StepReport:
        """Sample one rollout batch and learn from it."""
        step, task_state, entropy_state = self.done + 1, self.task.state(), self.entropy.state()
        try:
            with explain_out_of_memory(self.config, step), self.ranks.detecting_lost_ranks():
                return self._take_step(step)
        except GrpodoctorError:
            if self.done < step:
                self.task.restore(task_state)  # a resumed run must draw this step's prompts again
                self.entropy.restore(entropy_state)
                self.learner.optimizer.zero_grad(set_to_none=True)
                if self.critic is not None:
                    self.critic.optimizer.zero_grad(set_to_none=True)
            raise

    def _take_step(self, step: int) -> StepReport:
        started = time.perf_counter()
        changes = self._handle_requests(step)
        self.ranks.run_all(lambda: self.engine.maybe_sync(step))
        rollouts = self._collect(step)
        sampled = time.perf_counter()

        forward = self._reusable_forward(rollouts.samples)
        scores = self._score(rollouts.samples, forward)
        loss = self.entropy.adapted(self.config.loss, _mean_entropy(rollouts, scores))
        config = self.config.model_copy(update={"loss": loss})
        batch = self._learn_batch(rollouts, scores)
        experts = self._measure_experts(step, config, rollouts.samples)
        parts = self._mini_batches(step, rollouts)
        passes = passes_over(batch, scores.entropy_BT, config.reweighting)
        updates = self._update(step, config, passes, parts, forward)
        critic_readings = self._update_critic(step, batch, parts)
        learned = time.perf_counter()
        self.done, self._mid_step = step, False
        self._remember(rollouts)

        if not parts:
            self.recording.event("warning", step, {"message": _NO_VARIED_GROUP})
        training_step = TrainingStep(
            step=step,
            config=config,
            rollouts=rollouts,
            batch=batch,
            scores=scores,
            updates=updates,
            learning_rate=self._learning_rate(step),
            staleness=self._staleness(step),
            experts=None if experts is None else experts.after(updated=bool(updates)),
        )
        times = {
            "step": learned - started,
            "rollout": sampled - started,
            "learn": learned - sampled,
        }
        readings = _time_readings(times) | passes.readings | critic_readings
        readings = self._evaluate_and_record(training_step, readings, changes)
        return _report(training_step, readings, times["step"])

    def _evaluate_and_record(
        self, step: TrainingStep, readings: dict[str, Reading], changes: dict[str, Setting]
    ) -> dict[str, Reading]:
        """Add the readings of the task, the routers and the evaluation, and record the step."""
        readings |= self.task.readings() | self._constant_readings | replay_rates(step.updates)
        try:
            readings |= self._evaluate(step.step)
        finally:  # the step was taken even if the user's reward function fails in the evaluation
            self.recording.step(step, self.policy.model, readings, changes)
        return readings

    def _collect(self, step: int) -> RolloutGroups:
        rng = random.Random(self._seed(step, _RandomStream.PROMPTS))  # noqa: S311 - not a secret
        rollouts = collect(
            self.config,
            self.engine,
            self.task,
            self.policy.tokenizer,
            rng,
            self._generator(step, _RandomStream.SAMPLING),
            self.ranks,
        )
        require_correctness(rollouts.rewards.correct, self.config.loss.positive_nll)
        return rollouts

    def _score(self, samples: Samples, forward: ForwardOutput | None) -> Scores:
        if forward is not None:
            return Scores(forward.logprobs_BT.detach(), forward.entropy_BT.detach())
        return score_on_ranks(
            self.learner.model,
            samples,
            self.config.rollout.temperature,
            self.config.optimizer.micro_batch,
            self.ranks,
            routers=self.learner.routers,
            replay_BLDK=experts_to_replay(self.config, samples),
        )

    def _reusable_forward(self, samples: Samples) -> ForwardOutput | None:
        return (
            None if self._pretrains_critic else self.learner.reusable_forward(samples, self.config)
        )

    def _measure_experts(
        self, step: int, config: TrainConfig, samples: Samples
    ) -> ExpertMeasurement | None:
        if not config.record.measures_experts(step):
            return None
        return measure_experts(self.policy.model, samples, experts_to_replay(config, samples))

    def _learn_batch(self, rollouts: RolloutGroups, scores: Scores) -> LearnBatch:
        config, samples = self.config, rollouts.samples
        temperature, micro_batch = config.rollout.temperature, config.optimizer.micro_batch
        reference_logprobs_BT = values_BT = None
        if config.loss.kl_coefficient != 0:
            reference_logprobs_BT = self.reference.logprobs(samples, temperature, micro_batch)
        if self.critic is not None:
            values_BT = self.critic.values(samples, micro_batch)
        return build_learn_batch(
            config,
            rollouts,
            scores,
            visits=self.history.before(rollouts.prompt_ids(), rollouts.group_ids_B.device),
            values_BT=values_BT,
            reference_logprobs_BT=reference_logprobs_BT,
            full_return=self._pretrains_critic,
        )

    def _mini_batches(self, step: int, rollouts: RolloutGroups) -> list[Tensor]:
        generator = self._generator(step, _RandomStream.SHUFFLING)
        updates, epochs = self.config.optimizer.updates_per_batch, self.config.optimizer.epochs
        return list(mini_batches(rollouts.group_ids_B, rollouts.kept_B, updates, epochs, generator))

    def _update(
        self,
        step: int,
        config: TrainConfig,
        passes: Passes,
        parts: Sequence[Tensor],
        forward: ForwardOutput | None,
    ) -> list[Update]:
        """Take the policy's optimizer steps; none while only the critic is trained."""
        if self._pretrains_critic:
            return []
        self.recording.before_updates(self.policy.model, step, config.record.weights_every)
        learning_rate = self._learning_rate(step)
        generator, updates = self._generator(step, _RandomStream.TOKEN_CHOICE), []
        for batch, rows in itertools.product(passes.batches, parts):
            updates.append(
                self.learner.update(batch, rows, config, learning_rate, generator, forward)
            )
            self._mid_step = True
        gather_weights(self.learner.model, self.policy.model)
        return updates

    def _remember(self, rollouts: RolloutGroups) -> None:
        """Keep the batch's rewards, if the advantage uses the rewards of earlier batches."""
        settings = self.config.advantage
        if remembers_prompts(settings.kind):
            rewards_B, limit = rollouts.totals(), settings.prompts_remembered
            self.history.add(rollouts.prompt_ids(), rewards_B, rollouts.group_ids_B, limit)

    def _update_critic(
        self, step: int, batch: LearnBatch, parts: Sequence[Tensor]
    ) -> dict[str, Reading]:
        """Train the critic on a batch, in the policy's mini-batches or in its own passes."""
        if self.critic is None or batch.values is None:
            return {}
        config, passes = self.config, self.config.critic.passes
        if passes:
            updates_per_pass = config.optimizer.updates_per_batch // config.optimizer.epochs
            updates = updates_per_pass * passes
            generator = self._generator(step, _RandomStream.CRITIC)
            parts = list(mini_batches(batch.group_ids_B, batch.kept_B, updates, passes, generator))
        self._mid_step = True
        return self.critic.learn(batch.values, parts, config)

    @property
    def _pretrains_critic(self) -> bool:
        """Whether the current step trains only the critic."""
        return self.critic is not None and self.done < self.config.critic.pretrain_steps

    def _policy_steps(self, step: int) -> int:
        """Number of steps before `step` that trained the policy."""
        return max(0, step - 1 - self.config.critic.pretrain_steps)

    def _staleness(self, step: int) -> int:
        """Optimizer steps between the engine's weights and the learner's at the start of `step`."""
        config = self.config
        behind = self._policy_steps(step) - self._policy_steps(self.engine.synced_step)
        return behind * config.optimizer.updates_per_batch * config.reweighting.passes

    def _learning_rate(self, step: int) -> float:
        total = self._policy_steps(self.config.steps + 1)
        return scheduled_rate(self.config.optimizer, self._policy_steps(step), total)

    def _evaluate(self, step: int) -> dict[str, Reading]:
        every = self.config.evaluation.every
        if not every or (step % every and step not in (1, self.config.steps)):
            return {}
        generator = self._generator(step, _RandomStream.EVALUATION)
        return evaluate(self.config, self.policy, self.task, generator, self.ranks)

    def _handle_requests(self, step: int) -> dict[str, Setting]:
        """Handle the requests in the mailbox; returns the knobs that changed."""
        changed: dict[str, Setting] = {}
        for request in self.ranks.run_first(lambda: self.recording.requests(step)):
            handled = handle_request(request, self.config, step, self._prepare)
            self.config = handled.config
            changed |= handled.changed
            event = naming_checkpoint(handled.event, self.run_dir)
            self.recording.event(event.kind, event.step, event.body)
        return changed

    def _prepare(self, config: TrainConfig) -> None:
        """Load or check what a configuration needs: reference model, routers, engine settings.

        Raises:
            ConfigError: if it needs a critic and the run has none, or the other way round.
            ModelError: if it needs routers and the model has none.
        """
        routers = routers_for_training(config, self.learner.model)
        if (config.advantage.kind == ADVANTAGE) != (self.critic is not None):
            raise ConfigError(
                "a critic can be neither added nor removed during a run",
                where="advantage.kind",
                remedy="start a new run with this setting",
            )
        if config.loss.kl_coefficient > 0:
            self.reference.prepare()
        self.ranks.run_all(lambda: self.engine.set(config.engine, config.rollout.temperature))
        self.learner.routers = routers

    @property
    def _state(self) -> checkpoint.TrainerState:
        return checkpoint.TrainerState(
            model=self.policy.model,
            optimizer=self.learner.optimizer,
            engine=self.engine,
            task=self.task,
            entropy=self.entropy,
            history=self.history,
            critic=self.critic,
            heldout=self._heldout,
        )

    def _save(self) -> None:
        """Write a checkpoint unless this step already has one; training goes on if that fails.

        Only the first of several failures in a row is reported.
        """
        if self.is_saved:
            return
        self.recording.catch_up()
        try:
            checkpoint.save(self.run_dir, self.done, self.config, self._state, self.ranks)
            self._saved_at, self._save_failed = self.done, False
        except RunError as error:
            if self.ranks.is_first and not self._save_failed:
                _log.warning("%s", error)
                self.recording.event("warning", self.done, {"message": str(error)})
            self._save_failed = True

    def _seed(self, step: int, stream: _RandomStream) -> int:
        return int(np.random.SeedSequence((self.config.seed, step, stream)).generate_state(1)[0])

    def _generator(self, step: int, stream: _RandomStream) -> torch.Generator:
        return torch.Generator().manual_seed(self._seed(step, stream))


def _time_readings(seconds: dict[str, float]) -> dict[str, Reading]:
    return {f"time/{name}": Mean.of([value]) for name, value in seconds.items()}


def _mean_entropy(rollouts: RolloutGroups, scores: Scores) -> float:
    """Mean entropy of the generated tokens before the first update, in nats."""
    return float(scores.entropy_BT.sum() / rollouts.samples.mask_BT.sum())


def _report(step: TrainingStep, readings: dict[str, Reading], seconds: float) -> StepReport:
    rewards = step.rollouts.rewards
    heldout = readings.get("accuracy/heldout", readings.get("reward/heldout"))
    return StepReport(
        step=step.step,
        reward=float(np.mean(rewards.total)),
        accuracy=None if rewards.correct is None else float(np.mean(rewards.correct)),
        heldout=None if heldout is None else scalar(heldout),
        entropy=_mean_entropy(step.rollouts, step.scores),
        seconds=seconds,
    )
