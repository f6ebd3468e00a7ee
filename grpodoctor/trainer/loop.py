"""GRPO from top to bottom.

Simplifications, so that it can be read in one sitting:

- The learner and the engine that samples take turns. Several processes (`Ranks`) do all the same,
  each with a share of the rows; what is gathered of them is what one process would have.
- A response is one action with one advantage, unless a critic tells its tokens apart.
- Prompts are drawn when they are needed; sampling never runs ahead of learning.
- Dropout stays off, so that the ratio of the first update is one.
- A prompt's responses stay in one mini-batch.
- Randomness is derived from the seed and the step's number, so that a resumed run is the same run.

A step: requests, sync of the engine, sampling, rewards, scores, advantages, updates (of the critic
too where there is one), evaluation, record.
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

from grpodoctor.errors import ConfigError, GrpodoctorError, RunError
from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, TokenInputs, of_kept
from grpodoctor.trainer.algorithms.batches import LearnBatch, mini_batches
from grpodoctor.trainer.algorithms.corrections.base import CorrectionInputs
from grpodoctor.trainer.algorithms.entropy_controller import EntropyController
from grpodoctor.trainer.algorithms.passes import passes_over
from grpodoctor.trainer.algorithms.positive_nll import refuse_unjudged
from grpodoctor.trainer.algorithms.registry import advantage_of, correction_of, remembers_prompts
from grpodoctor.trainer.algorithms.shaping.kl_in_reward import kl_in_reward
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.data.loading import build_task
from grpodoctor.trainer.data.pass_rates import watched
from grpodoctor.trainer.data.prompt_history import PromptHistory
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.distributed.sharding import gather_weights, scatter_weights, shard
from grpodoctor.trainer.engines.rollout_engine import build_engine
from grpodoctor.trainer.evaluate import evaluate
from grpodoctor.trainer.expert_readings import (
    constant_expert_readings,
    experts_to_replay,
    measure_experts,
    old_gates,
    replay_rates,
    routers_for_training,
)
from grpodoctor.trainer.learner import ForwardOutput, Learner
from grpodoctor.trainer.model import checkpoint
from grpodoctor.trainer.model.critic import ADVANTAGE, Critic, value_batch
from grpodoctor.trainer.model.policy import load_policy_on_ranks
from grpodoctor.trainer.model.reference import Reference
from grpodoctor.trainer.model.scoring import Scores, score_on_ranks
from grpodoctor.trainer.out_of_memory import explain_out_of_memory
from grpodoctor.trainer.recording import RunRecording
from grpodoctor.trainer.request_handler import answer
from grpodoctor.trainer.rollout import Rollouts, collect, loss_mask
from grpodoctor.trainer.samples import Samples
from grpodoctor.trainer.step_record import TrainingStep
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Mean, Reading, scalar

_log = logging.getLogger("grpodoctor")

_NOTHING_TO_LEARN = (
    "no update was taken: no group had variance in reward, and rollout.filter_groups leaves such "
    "groups out"
)


class _Stream(IntEnum):
    """What a random number is for."""

    PROMPTS = 0
    SAMPLING = 1
    SHUFFLING = 2
    EVALUATION = 3
    CRITIC = 4
    CHOICE = 5


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a progress line shows."""

    step: int
    reward: float
    accuracy: float | None
    """Of the rollouts; None if nobody can tell."""
    heldout: float | None
    """Held-out accuracy, or reward where nobody can tell; None at steps without evaluation."""
    entropy: float
    seconds: float


class Trainer:
    """A training run in a directory.

    Args:
        config: everything that decides its numbers.
        run_dir: where records and checkpoints go.
        resume: continue from the directory's newest checkpoint.
        ranks: the processes that train together, each with a trainer; the first one alone writes.

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
        if config.threads:
            torch.set_num_threads(config.threads)
        if not resume:
            ranks.run_first(lambda: checkpoint.refuse_existing_run(run_dir))
        self.config, self.run_dir, self.ranks = config, run_dir, ranks
        task = ranks.run_all(lambda: build_task(config.task))
        self.task = watched(task, config.difficulty)
        self.policy = load_policy_on_ranks(config, task, ranks)
        divided = shard(self.policy.model, ranks)
        self.learner = Learner(divided, config.optimizer, ranks)
        self.critic = (
            Critic(self.policy.model, config, ranks) if config.advantage.kind == ADVANTAGE else None
        )
        self.engine = ranks.run_all(lambda: build_engine(config, self.policy, ranks))
        self.entropy, self.history = EntropyController(), PromptHistory()
        self.done = 0
        """Steps taken."""
        if resume:
            self.done = checkpoint.restore(run_dir, self._parts, ranks)
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
        self._standing = constant_expert_readings(self.policy.model)
        self._stopping = False
        self._torn = False
        """Whether the weights are between two steps, of which no checkpoint may be written."""
        self._saved_at = self.done
        self._save_failed = False

    def run(self, on_step: Callable[[StepReport], None] | None = None) -> None:
        """Train until the configured number of steps is done or somebody calls `stop`.

        Args:
            on_step: called after every step.

        Raises:
            DataError: if the user's data or reward function fails.
            OutOfMemoryError: if a step does not fit the memory.

        Before it raises, a checkpoint of the last whole step is written, unless some of the next
        step's updates are in the weights already.
        """
        try:
            while self.done < self.config.steps and not self.ranks.any(self._stopping):
                report = self.train_step()
                if self.config.checkpoint.every and self.done % self.config.checkpoint.every == 0:
                    self._save()
                if on_step:
                    on_step(report)
            self._save()
        except GrpodoctorError as error:
            if not self._torn and not self.ranks.is_local_error(error):
                self._save()
            self.recording.event("warning", self.done, {"message": f"training ended: {error}"})
            raise
        else:
            self.recording.close(finished=True)
        finally:
            self.recording.close(finished=False)
            self.engine.close()

    @property
    def is_saved(self) -> bool:
        """Whether a checkpoint holds the latest step, or there is no step yet to hold."""
        return self._saved_at == self.done

    def stop(self) -> None:
        """End after the step in progress, with a checkpoint; safe to call from a signal handler."""
        self._stopping = True

    def train_step(self) -> StepReport:
        """Sample one rollout batch and learn from it."""
        step, stream, entropy = self.done + 1, self.task.state(), self.entropy.state()
        try:
            with explain_out_of_memory(self.config, step), self.ranks.detecting_lost_ranks():
                return self._take_step(step)
        except GrpodoctorError:
            if self.done < step:
                self.task.restore(stream)  # so that a resumed run draws this step's prompts again
                self.entropy.restore(entropy)
                self.learner.optimizer.zero_grad(set_to_none=True)
                if self.critic is not None:
                    self.critic.optimizer.zero_grad(set_to_none=True)
            raise

    def _take_step(self, step: int) -> StepReport:
        began = time.perf_counter()
        changes = self._take_requests(step)
        config = self.config
        self.ranks.run_all(lambda: self.engine.maybe_sync(step))
        rollouts = self._collect(step)
        sampled = time.perf_counter()

        ahead = None if self._is_frozen else self.learner.reusable_forward(rollouts.samples, config)
        scores = self._score(rollouts.samples, ahead)
        config = self.entropy.in_force(config, _mean_entropy(rollouts, scores))
        batch = self._learn_batch(rollouts, scores)
        watch = measure_experts(config, step, self.policy.model, rollouts.samples)
        learning_rate = self._learning_rate(step)
        shuffle = self._generator(step, _Stream.SHUFFLING)
        parts = list(mini_batches(rollouts.group_ids_B, rollouts.kept_B, config.optimizer, shuffle))
        passes = passes_over(batch, scores.entropy_BT, config.reweighting)
        chance, updates = self._generator(step, _Stream.CHOICE), []
        if not self._is_frozen:
            self.recording.before_updates(self.policy.model, step, config.record.weights_every)
            for each, rows in itertools.product(passes.batches, parts):
                updates.append(
                    self.learner.update(each, rows, config, learning_rate, chance, ahead)
                )
                self._torn = True
            gather_weights(self.learner.model, self.policy.model)
        values = self._teach_critic(step, batch, parts)
        learnt = time.perf_counter()
        self.done, self._torn = step, False
        self._remember(rollouts)

        times = {"step": learnt - began, "rollout": sampled - began, "learn": learnt - sampled}
        readings: dict[str, Reading] = {f"time/{name}": Mean.of([t]) for name, t in times.items()}
        readings |= passes.readings
        readings |= values | self.task.readings() | self._standing | replay_rates(updates)
        if not parts:
            self.recording.event("warning", step, {"message": _NOTHING_TO_LEARN})
        behind = self._policy_steps(step) - self._policy_steps(self.engine.synced_step)
        staleness = behind * config.optimizer.updates_per_batch * config.reweighting.passes
        facts = TrainingStep(
            *(step, config, rollouts, batch, scores, updates, learning_rate, staleness),
            experts=None if watch is None else watch.after(updated=bool(updates)),
        )
        try:
            readings |= self._evaluate(step)
        finally:  # where the user's reward function fails now, the step was taken all the same
            self.recording.step(facts, self.policy.model, readings, changes)
        return _report(facts, readings, times["step"])

    def _collect(self, step: int) -> Rollouts:
        rng = random.Random(self._seed(step, _Stream.PROMPTS))  # noqa: S311 - prompts, not secrets
        generator = self._generator(step, _Stream.SAMPLING)
        drawn = collect(
            *(self.config, self.engine, self.task, self.policy.tokenizer, rng, generator),
            self.ranks,
        )
        refuse_unjudged(drawn.rewards, self.config.loss.positive_nll)
        return drawn

    def _score(self, samples: Samples, ahead: ForwardOutput | None) -> Scores:
        if ahead is not None:
            return Scores(ahead.logprobs_BT.detach(), ahead.entropy_BT.detach())
        return score_on_ranks(
            self.learner.model,
            samples,
            self.config.rollout.temperature,
            self.config.optimizer.micro_batch,
            self.ranks,
            routers=self.learner.routers,
            replay_BLDK=experts_to_replay(self.config, samples),
        )

    def _learn_batch(self, rollouts: Rollouts, scores: Scores) -> LearnBatch:
        config, samples = self.config, rollouts.samples
        loss_mask_BT = loss_mask(rollouts, config)
        reference_logprobs_BT = self._reference_logprobs(rollouts)
        kl_penalty_B = self._kl_penalty(samples, scores, reference_logprobs_BT)
        rewards_B = rollouts.totals()
        inputs = AdvantageInputs(
            rewards_B if kl_penalty_B is None else rewards_B - kl_penalty_B,
            rollouts.group_ids_B,
            config.advantage,
            rollouts.components(),
            self._token_inputs(samples, loss_mask_BT),
            self.history.before(rollouts.prompt_ids(), rewards_B.device),
        )
        advantages = of_kept(advantage_of(config.advantage.kind), inputs, rollouts.kept_B)
        corrected = correction_of(config.correction.kind)(
            CorrectionInputs(
                scores.logprobs_BT, samples.logprobs_BT, loss_mask_BT, config.correction
            )
        )
        from_sampler = config.engine.old_logprobs == "sampler"
        return LearnBatch(
            samples=samples,
            group_ids_B=rollouts.group_ids_B,
            kept_B=rollouts.kept_B,
            advantages_BT=_per_token(advantages.float(), loss_mask_BT),
            loss_mask_BT=loss_mask_BT,
            old_logprobs_BT=samples.logprobs_BT if from_sampler else scores.logprobs_BT,
            corrected=corrected,
            reference_logprobs_BT=reference_logprobs_BT,
            kl_penalty_B=kl_penalty_B,
            correct_B=rollouts.correct(),
            values=value_batch(samples, inputs, config, whole=self._is_frozen),
            replay_BLDK=experts_to_replay(config, samples, scores),
            old_gates=old_gates(config, scores),
        )

    def _remember(self, rollouts: Rollouts) -> None:
        """Keep the batch's rewards for an advantage that looks back, once the batch is learnt."""
        settings = self.config.advantage
        if remembers_prompts(settings.kind):
            rewards_B, limit = rollouts.totals(), settings.prompts_remembered
            self.history.add(rollouts.prompt_ids(), rewards_B, rollouts.group_ids_B, limit)

    def _token_inputs(self, samples: Samples, loss_mask_BT: torch.Tensor) -> TokenInputs | None:
        if self.critic is None:
            return None
        values_BT = self.critic.values(samples, self.config.optimizer.micro_batch)
        return TokenInputs(values_BT, samples.mask_BT, loss_mask_BT)

    def _teach_critic(
        self, step: int, batch: LearnBatch, parts: Sequence[torch.Tensor]
    ) -> dict[str, Reading]:
        """Let the critic learn a batch, in the policy's mini-batches or passes of its own."""
        if self.critic is None or batch.values is None:
            return {}
        config, passes = self.config, self.config.critic.passes
        if passes:
            size = config.optimizer.updates_per_batch // config.optimizer.epochs
            own = {"epochs": passes, "updates_per_batch": size * passes}
            division = config.optimizer.model_copy(update=own)
            shuffle = self._generator(step, _Stream.CRITIC)
            parts = list(mini_batches(batch.group_ids_B, batch.kept_B, division, shuffle))
        self._torn = True
        return self.critic.learn(batch.values, parts, config)

    @property
    def _is_frozen(self) -> bool:
        """Whether the critic alone learns in the step that is being taken."""
        return self.critic is not None and self.done < self.config.critic.pretrain_steps

    def _policy_steps(self, step: int) -> int:
        """Training steps before `step` in which the policy learnt."""
        return max(0, step - 1 - self.config.critic.pretrain_steps)

    def _kl_penalty(
        self, samples: Samples, scores: Scores, reference_logprobs_BT: torch.Tensor | None
    ) -> torch.Tensor | None:
        """What a KL penalty takes off each reward; None where there is none in the reward."""
        loss = self.config.loss
        if reference_logprobs_BT is None or loss.kl_placement == "loss":
            return None
        return kl_in_reward(
            scores.logprobs_BT, reference_logprobs_BT, samples.mask_BT, loss.kl_coefficient
        )

    def _reference_logprobs(self, rollouts: Rollouts) -> torch.Tensor | None:
        if self.config.loss.kl_coefficient == 0:
            return None
        return self.reference.logprobs(
            rollouts.samples,
            self.config.rollout.temperature,
            self.config.optimizer.micro_batch,
        )

    def _learning_rate(self, step: int) -> float:
        optimizer = self.config.optimizer
        learnt = self._policy_steps(step) + 1
        return optimizer.learning_rate * min(1.0, learnt / (optimizer.warmup_steps + 1))

    def _evaluate(self, step: int) -> dict[str, Reading]:
        every = self.config.evaluation.every
        if not every or (step % every and step not in (1, self.config.steps)):
            return {}
        generator = self._generator(step, _Stream.EVALUATION)
        return evaluate(self.config, self.policy, self.task, generator, self.ranks)

    def _take_requests(self, step: int) -> dict[str, Setting]:
        """Do what the mailbox asks for; returns the knobs that changed."""
        changed: dict[str, Setting] = {}
        for request in self.ranks.run_first(self.recording.requests):
            given = answer(request, self.config, step, self._prepare)
            self.config = given.config
            changed |= given.changed
            self.recording.event(given.event.kind, given.event.step, given.event.body)
        return changed

    def _prepare(self, config: TrainConfig) -> None:
        """Bring about what a configuration needs beside its numbers.

        Raises:
            ConfigError: if it needs a critic and there is none, or the other way round.
            ModelError: if it needs routers and the model has none.
        """
        routers = routers_for_training(config, self.learner.model)
        if (config.advantage.kind == ADVANTAGE) != (self.critic is not None):
            raise ConfigError(
                "a critic neither begins nor ends in flight",
                where="advantage.kind",
                remedy="start another run with it",
            )
        if config.loss.kl_coefficient > 0:
            self.reference.prepare()
        self.ranks.run_all(lambda: self.engine.set(config.engine, config.rollout.temperature))
        self.learner.routers = routers

    @property
    def _parts(self) -> checkpoint.TrainerState:
        return checkpoint.TrainerState(
            *(self.policy.model, self.learner.optimizer, self.engine, self.task, self.entropy),
            *(self.history, self.critic),
        )

    def _save(self) -> None:
        """Write a checkpoint unless this step's stands already; a failure is no end of training.

        Of failures in a row only the first is told.
        """
        if self.is_saved:
            return
        try:
            checkpoint.save(self.run_dir, self.done, self.config, self._parts, self.ranks)
            self._saved_at, self._save_failed = self.done, False
        except RunError as error:
            if self.ranks.is_first and not self._save_failed:
                _log.warning("%s", error)
                self.recording.event("warning", self.done, {"message": str(error)})
            self._save_failed = True

    def _seed(self, step: int, stream: _Stream) -> int:
        return int(np.random.SeedSequence((self.config.seed, step, stream)).generate_state(1)[0])

    def _generator(self, step: int, stream: _Stream) -> torch.Generator:
        return torch.Generator().manual_seed(self._seed(step, stream))


def _mean_entropy(rollouts: Rollouts, scores: Scores) -> float:
    """Of the batch's generated tokens, when it begins."""
    return float(scores.entropy_BT.sum() / rollouts.samples.mask_BT.sum())


def _per_token(advantages: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """A response's advantage is that of each of its tokens; shape (B, T) from (B,) or (B, T)."""
    return advantages if advantages.ndim == 2 else advantages[:, None].expand(mask_BT.shape)


def _report(facts: TrainingStep, readings: dict[str, Reading], seconds: float) -> StepReport:
    rewards = facts.rollouts.rewards
    heldout = readings.get("accuracy/heldout", readings.get("reward/heldout"))
    return StepReport(
        step=facts.step,
        reward=float(np.mean(rewards.total)),
        accuracy=None if rewards.correct is None else float(np.mean(rewards.correct)),
        heldout=None if heldout is None else scalar(heldout),
        entropy=_mean_entropy(facts.rollouts, facts.scores),
        seconds=seconds,
    )
