"""Recording of a run: turns each training step into arrays for the recorder, and reads the mailbox.

The arithmetic on the arrays happens in the recorder's own process.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from grpodoctor.measure.batch import RolloutBatch, UpdateBatch
from grpodoctor.measure.experts import ExpertBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.measure.weights.update_size import WeightSnapshot
from grpodoctor.runs.recording.directory import take_run_lock
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Manifest
from grpodoctor.support.files.locks import Lock
from grpodoctor.trainer.algorithms.batches import LearnBatch, Update
from grpodoctor.trainer.algorithms.losses.token_level.ppo_clip import PpoClip
from grpodoctor.trainer.config.knobs import knobs_of
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.model.scoring import Scores
from grpodoctor.trainer.rollout import RolloutGroups
from grpodoctor.treatment.mailbox import Inbox, Refused, Request
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One completed training step. Its tensors are not modified afterwards."""

    step: int
    config: TrainConfig
    """The configuration during the step."""
    rollouts: RolloutGroups
    batch: LearnBatch
    scores: Scores
    """The learner's scores before the first update."""
    updates: Sequence[Update]
    learning_rate: float
    staleness: int
    """Optimizer steps between sampling and use."""
    experts: ExpertBatch | None = None
    """The routing before and after the updates; None at steps without a measurement."""


class RunRecording:
    """Passes each step to the recorder and takes requests from the mailbox.

    Args:
        config: the run's configuration. With `record.enabled=false` this class only keeps other
            trainers out of the directory.
        policy: the trained policy.
        run_dir: directory of the run.
        ranks: the processes of the run. Only the first one records; all pass the same data.
        resume: continue the records in the directory.

    Raises:
        RunError: if the directory cannot be recorded in.
    """

    def __init__(
        self,
        config: TrainConfig,
        policy: Policy,
        run_dir: Path,
        *,
        resume: bool,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        self._recorder: Recorder | None = None
        self._inbox: Inbox | None = None
        self._snapshot: WeightSnapshot | None = None
        self._seconds: float | None = None
        """Time this thread spent on recording since the last reported step."""
        self._lock: Lock | None = None
        if not ranks.is_first:
            return
        if not config.record.enabled:
            self._lock = take_run_lock(run_dir)
            return
        self._recorder = Recorder.open(
            run_dir,
            manifest(config, policy),
            depth=config.record.depth,
            worst=config.record.worst,
            resume=resume,
        )
        self._inbox = Inbox(run_dir)

    @property
    def _active(self) -> Recorder | None:
        """The recorder, unless there is none or it has failed: then no work is done for it."""
        return self._recorder if self._recorder and self._recorder.failure is None else None

    def requests(self, step: int) -> list[Request | Refused]:
        """The requests in the run's mailbox at the beginning of a step."""
        return self._inbox.take(step) if self._inbox else []

    def event(self, kind: str, step: int, body: Mapping[str, Any] | None = None) -> None:
        """Add a line to the run's events."""
        if self._recorder:
            self._recorder.event(kind, step, body)

    def before_updates(self, model: PreTrainedModel, step: int, every: int) -> None:
        """Take a snapshot of the weights at every `every`-th step; never if `every` is 0."""
        if not (recorder := self._active) or not every or step % every:
            return
        try:
            started = time.perf_counter()
            self._snapshot = WeightSnapshot.take(model)
            self._seconds = (self._seconds or 0.0) + time.perf_counter() - started
        except Exception as error:  # noqa: BLE001 - the trainer boundary
            recorder.end(error)

    def step(
        self,
        step: TrainingStep,
        model: PreTrainedModel,
        readings: Mapping[str, Reading],
        changes: Mapping[str, Setting],
    ) -> None:
        """Record a step by handing its arrays to the recorder's process.

        The cost is known only afterwards, so `time/record` is the cost of the previous step.
        """
        snapshot, self._snapshot = self._snapshot, None
        if not (recorder := self._active):
            return
        try:
            started = time.perf_counter()
            moved = snapshot.change(model) if snapshot else {}
            cost = {} if self._seconds is None else {"time/record": Mean.of([self._seconds])}
            batch = step_batch(step, {**readings, **moved, **cost})
            recorder.step(step.step, batch, knobs=changes)
            self._seconds = time.perf_counter() - started
        except Exception as error:  # noqa: BLE001 - the trainer boundary
            recorder.end(error)

    def catch_up(self) -> None:
        """Wait until all steps are on disk, so that no checkpoint is ahead of the record.

        A writer process that is stuck delays one checkpoint and no further ones.
        """
        if self._recorder:
            self._recorder.catch_up()

    def close(self, *, finished: bool) -> None:
        """Write what is pending and release the directory; the second call does nothing."""
        if self._recorder:
            self._recorder.close(finished=finished)
        if self._lock:
            self._lock.release()


def manifest(config: TrainConfig, policy: Policy) -> Manifest:
    """The facts about a run that do not change."""
    sampling = config.model_dump_json(include={"rollout", "engine"}).encode()
    packages = ("grpodoctor", "torch", "transformers", "numpy")
    return Manifest(
        framework="grpodoctor",
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
        model=policy.name,
        knobs=knobs_of(config),
        config=config.model_dump(mode="json"),
        seed=config.seed,
        template_hash=policy.tokenizer.template_hash,
        sampler_hash=hashlib.sha256(sampling).hexdigest()[:16],
    )


def rollout_batch(step: TrainingStep) -> RolloutBatch:
    """The rollout batch as numpy arrays, which share memory with tensors on the CPU."""
    rollouts, batch, samples = step.rollouts, step.batch, step.rollouts.samples
    size = step.config.rollout.group_size
    correct = rollouts.rewards.correct
    return RolloutBatch(
        step=step.step,
        sequence_ids=[f"{step.step}-{row // size}-{row % size}" for row in range(len(samples))],
        group_ids_B=_array(rollouts.group_ids_B),
        prompt_ids=[problem.id for problem in rollouts.problems],
        prompts=[problem.prompt for problem in rollouts.problems],
        texts=rollouts.texts,
        references=[problem.answer for problem in rollouts.problems],
        tokens_BT=_array(samples.response_BT),
        mask_BT=_array(samples.mask_BT),
        rewards_B=np.asarray(rollouts.rewards.total, dtype=np.float64),
        truncated_B=_array(samples.truncated_B),
        components={
            name: np.asarray(values, dtype=np.float64)
            for name, values in rollouts.rewards.components.items()
        },
        correct_B=None if correct is None else np.asarray(correct, dtype=bool),
        advantages_B=_array(_of_response(batch.advantages_BT, batch.loss_mask_BT)),
        advantages_BT=_array_if(_where_tokens_differ(batch.advantages_BT, batch.loss_mask_BT)),
        learner_logprobs_BT=_array(step.scores.logprobs_BT),
        sampler_logprobs_BT=_array(samples.logprobs_BT),
        old_logprobs_BT=_array(batch.old_logprobs_BT),
        entropy_BT=_array(step.scores.entropy_BT),
        loss_mask_BT=_array(batch.loss_mask_BT),
        staleness_B=np.full(len(samples), step.staleness),
        prompt_tokens=_arrays(samples.prompt_ids()),
    )


def step_batch(step: TrainingStep, readings: Mapping[str, Reading]) -> StepBatch:
    """The data from which the recorder computes a step's record."""
    rollouts = rollout_batch(step)
    recomputed = step.config.engine.old_logprobs == "recompute"
    return StepBatch(
        rollouts=rollouts,
        updates=[_update_batch(step, rollouts, update) for update in step.updates],
        on_policy=recomputed and len(step.updates) == 1,
        experts=step.experts,
        readings={
            **_sampling_readings(step),
            **_optimizer_readings(step.updates),
            **readings,
        },
    )


def _sampling_readings(step: TrainingStep) -> dict[str, Reading]:
    """How much of the generated data is learned from, and the penalties."""
    rollouts, batch, loss = step.rollouts, step.batch, step.config.loss
    kept = rollouts.kept_groups()
    readings: dict[str, Reading] = {
        "groups/generated_per_kept": Mean.of([rollouts.generated_groups / kept])
        if kept
        else NotApplicable("no group is learned from"),
        "optimizer/left_out_rate": Rate.of(_array(~batch.loss_mask_BT.any(dim=1))),
        "optimizer/untrained_token_rate": _untrained_tokens(rollouts, batch),
    }
    if rollouts.limit_hit is not None:
        readings["groups/limit_hit_rate"] = Rate.of([rollouts.limit_hit])
    if batch.kl_penalty_B is not None:
        readings["reward/kl_penalty"] = Mean.of(_array(batch.kl_penalty_B))
    if loss.entropy_target is not None or loss.entropy_coefficient != 0:
        readings["optimizer/entropy_coefficient"] = Mean.of([loss.entropy_coefficient])
    return readings


def _untrained_tokens(rollouts: RolloutGroups, batch: LearnBatch) -> Reading:
    """Generated tokens outside the loss, of the responses that are in the loss."""
    trained_B = batch.loss_mask_BT.any(dim=1)
    generated_BT = rollouts.samples.mask_BT & trained_B[:, None]
    if not generated_BT.any():
        return NotApplicable("no response is in the loss")
    return Rate.of(_array(~batch.loss_mask_BT[generated_BT]))


def _optimizer_readings(updates: Sequence[Update]) -> dict[str, Reading]:
    """Readings of the learner's updates; zero updates while only the critic is trained."""
    if not updates:
        return {"updates_per_batch": Mean.of([0])}
    readings: dict[str, Reading] = {
        "optimizer/skipped_rate": Rate.of([not update.applied for update in updates])
    }
    likelihoods = [update.positive_nll for update in updates if update.positive_nll is not None]
    if likelihoods:
        readings["optimizer/positive_nll"] = Mean.of(likelihoods)
    return readings


def _update_batch(step: TrainingStep, rollouts: RolloutBatch, update: Update) -> UpdateBatch:
    batch, loss, rows_M = step.batch, step.config.loss, _array(update.rows_M)
    mask_MT = _array(batch.loss_mask_BT)[rows_M]
    if update.pass_mask_MT is not None:
        mask_MT = mask_MT & _array(update.pass_mask_MT)
    corrected, reference_BT = batch.corrected, batch.reference_logprobs_BT
    return UpdateBatch(
        sequence_ids=[rollouts.sequence_ids[row] for row in rows_M],
        new_logprobs_BT=_array(update.new_logprobs_MT),
        old_logprobs_BT=_array(batch.old_logprobs_BT)[rows_M],
        advantages_BT=_array(batch.advantages_BT)[rows_M],
        loss_mask_BT=mask_MT,
        loss=update.loss,
        grad_norm=update.grad_norm,
        learning_rate=step.learning_rate,
        dual_clip=loss.dual_clip if isinstance(loss, PpoClip) else None,
        entropy_BT=_array(step.scores.entropy_BT)[rows_M],
        reference_logprobs_BT=None if reference_BT is None else _array(reference_BT)[rows_M],
        weights_BT=None if corrected is None else _array(corrected.weights_BT)[rows_M],
        capped_BT=None if corrected is None else _array(corrected.capped_BT)[rows_M],
        clipped_low_BT=_array_if(update.clipped_low_MT),
        clipped_high_BT=_array_if(update.clipped_high_MT),
        gate_BT=_array_if(update.gate_MT),
        chosen_BT=_array_if(update.chosen_MT) if loss.selects_by_covariance else None,
        stale_B=None if update.stale_M1 is None else _array(update.stale_M1[:, 0]),
    )


def _of_response(advantages_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The mean advantage of each response's loss tokens, shape (B,); exact if all are equal.

    A response without loss tokens gets the advantage of its first position.
    """
    first_B = advantages_BT[:, 0]
    rest_BT = torch.where(mask_BT, advantages_BT - first_B[:, None], 0.0)
    return first_B + rest_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)


def _where_tokens_differ(advantages_BT: Tensor, mask_BT: Tensor) -> Tensor | None:
    """The advantages if they differ within the loss tokens of any response, else None."""
    differ = (advantages_BT != advantages_BT[:, :1]) & mask_BT
    return advantages_BT if bool(differ.any()) else None


def _array_if(tensor: Tensor | None) -> np.ndarray | None:
    return None if tensor is None else _array(tensor)


def _arrays(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """The tensors as arrays; one that is there several times is one array, and is sent once."""
    arrays = {id(tensor): _array(tensor) for tensor in tensors}
    return [arrays[id(tensor)] for tensor in tensors]


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
