"""From a training step to what the recorder is given: arrays here, the arithmetic elsewhere."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor

from grpodoctor.measure.batch import RolloutBatch, UpdateBatch
from grpodoctor.measure.experts import ExpertBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.runs.records import Manifest
from grpodoctor.trainer.algorithms.batches import LearnBatch, Update
from grpodoctor.trainer.config.knobs import knobs_of
from grpodoctor.trainer.config.loss_settings import PpoClip
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.model.scoring import Scores
from grpodoctor.trainer.rollout import Rollouts
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One training step, as the loop saw it. Nobody changes a tensor of it afterwards."""

    step: int
    config: TrainConfig
    """In force during the step."""
    rollouts: Rollouts
    batch: LearnBatch
    scores: Scores
    """Of the learner when the batch began."""
    updates: Sequence[Update]
    learning_rate: float
    staleness: int
    """Optimizer steps between sampling and use."""
    experts: ExpertBatch | None = None
    """What a look at the routers gave; None where nobody looked."""


def manifest(config: TrainConfig, policy: Policy) -> Manifest:
    """What does not change during a run."""
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


def rollout_batch(facts: TrainingStep) -> RolloutBatch:
    """The rollout batch as numpy arrays, which share memory with tensors on the CPU."""
    rollouts, batch, samples = facts.rollouts, facts.batch, facts.rollouts.samples
    size = facts.config.rollout.group_size
    correct = rollouts.rewards.correct
    return RolloutBatch(
        step=facts.step,
        sequence_ids=[f"{facts.step}-{row // size}-{row % size}" for row in range(len(samples))],
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
        learner_logprobs_BT=_array(facts.scores.logprobs_BT),
        sampler_logprobs_BT=_array(samples.logprobs_BT),
        old_logprobs_BT=_array(batch.old_logprobs_BT),
        entropy_BT=_array(facts.scores.entropy_BT),
        loss_mask_BT=_array(batch.loss_mask_BT),
        staleness_B=np.full(len(samples), facts.staleness),
    )


def step_batch(facts: TrainingStep, more: Mapping[str, Reading]) -> StepBatch:
    """All that a step's record is made of.

    Args:
        facts: the step.
        more: readings that the loop took itself: times, evaluation, change of the weights.
    """
    rollouts = rollout_batch(facts)
    recomputed = facts.config.engine.old_logprobs == "recompute"
    return StepBatch(
        rollouts=rollouts,
        updates=[_update_batch(facts, rollouts, update) for update in facts.updates],
        on_policy=recomputed and len(facts.updates) == 1,
        experts=facts.experts,
        readings={
            **_sampling_readings(facts),
            **_optimizer_readings(facts.updates),
            **more,
        },
    )


def _sampling_readings(facts: TrainingStep) -> dict[str, Reading]:
    """What of all that was generated is learnt from, and with which penalties."""
    rollouts, batch, loss = facts.rollouts, facts.batch, facts.config.loss
    kept = rollouts.kept_groups()
    readings: dict[str, Reading] = {
        "groups/generated_per_kept": Mean.of([rollouts.generated_groups / kept])
        if kept
        else NotApplicable("no group is learnt from"),
        "optimizer/left_out_rate": Rate.of(_array(~batch.loss_mask_BT.any(dim=1))),
    }
    if rollouts.limit_hit is not None:
        readings["groups/limit_hit_rate"] = Rate.of([rollouts.limit_hit])
    if batch.kl_penalty_B is not None:
        readings["reward/kl_penalty"] = Mean.of(_array(batch.kl_penalty_B))
    if loss.entropy_target is not None or loss.entropy_coefficient != 0:
        readings["optimizer/entropy_coefficient"] = Mean.of([loss.entropy_coefficient])
    return readings


def _optimizer_readings(updates: Sequence[Update]) -> dict[str, Reading]:
    """What only the learner knows; that there was no update while a critic learns alone."""
    if not updates:
        return {"updates_per_batch": Mean.of([0])}
    readings: dict[str, Reading] = {
        "optimizer/skipped_rate": Rate.of([not update.applied for update in updates])
    }
    likelihoods = [each.positive_nll for each in updates if each.positive_nll is not None]
    if likelihoods:
        readings["optimizer/positive_nll"] = Mean.of(likelihoods)
    return readings


def _update_batch(facts: TrainingStep, rollouts: RolloutBatch, update: Update) -> UpdateBatch:
    batch, loss, rows_M = facts.batch, facts.config.loss, _array(update.rows_M)
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
        learning_rate=facts.learning_rate,
        dual_clip=loss.dual_clip if isinstance(loss, PpoClip) else None,
        entropy_BT=_array(facts.scores.entropy_BT)[rows_M],
        reference_logprobs_BT=None if reference_BT is None else _array(reference_BT)[rows_M],
        weights_BT=None if corrected is None else _array(corrected.weights_BT)[rows_M],
        capped_BT=None if corrected is None else _array(corrected.capped_BT)[rows_M],
        clipped_low_BT=_array_if(update.clipped_low_MT),
        clipped_high_BT=_array_if(update.clipped_high_MT),
        gate_BT=_array_if(update.gate_MT),
        chosen_BT=_array_if(update.chosen_MT),
        stale_B=None if update.stale_M1 is None else _array(update.stale_M1[:, 0]),
    )


def _of_response(advantages_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The mean advantage of each response's loss tokens, shape (B,); exact where all are equal.

    A response without loss tokens has that of its first position.
    """
    first_B = advantages_BT[:, 0]
    rest_BT = torch.where(mask_BT, advantages_BT - first_B[:, None], 0.0)
    return first_B + rest_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)


def _where_tokens_differ(advantages_BT: Tensor, mask_BT: Tensor) -> Tensor | None:
    """The advantages if the loss tokens of some response have different ones, else None."""
    differ = (advantages_BT != advantages_BT[:, :1]) & mask_BT
    return advantages_BT if bool(differ.any()) else None


def _array_if(tensor: Tensor | None) -> np.ndarray | None:
    return None if tensor is None else _array(tensor)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
