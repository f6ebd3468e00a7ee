"""All readings of one training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from grpodoctor.measure.batch import RolloutBatch, UpdateBatch
from grpodoctor.measure.experts import ExpertBatch, expert_readings
from grpodoctor.measure.rollouts import rollout_readings
from grpodoctor.measure.updates import update_readings
from grpodoctor.vocabulary.values import Mean, Reading, merge_all


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """What a training step leaves to be measured: plain data, so that any process can do it."""

    rollouts: RolloutBatch
    updates: Sequence[UpdateBatch] = ()
    """The optimizer steps taken on the rollouts, in order; empty if nobody looked at them."""
    on_policy: bool = False
    """One update per batch, and the old log-probabilities are the learner's own: clipping has no
    meaning."""
    experts: ExpertBatch | None = None
    """None for a dense model, and where nobody looked."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """What whoever trains read himself: times, evaluation, change of the weights. They win."""


def step_readings(batch: StepBatch) -> dict[str, Reading]:
    """Everything that is known about a step, by canonical name.

    The updates are measured one by one: what belongs to the tokens of most entropy is decided
    within an update, so that measuring them all at once would give another number.
    """
    return {
        **rollout_readings(batch.rollouts),
        **_readings_of_updates(batch),
        **({} if batch.experts is None else expert_readings(batch.experts)),
        **batch.readings,
    }


def _readings_of_updates(batch: StepBatch) -> dict[str, Reading]:
    if not batch.updates:
        return {}
    each = (update_readings(update, on_policy=batch.on_policy) for update in batch.updates)
    merged = reduce(merge_all, each)
    return {**merged, "updates_per_batch": Mean.of([len(batch.updates)])}
