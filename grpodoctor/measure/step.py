"""All readings of one training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import Any

from grpodoctor.measure.agreement import agreement_of
from grpodoctor.measure.answers import answers_of
from grpodoctor.measure.batch import RolloutBatch, UpdateBatch
from grpodoctor.measure.experts import ExpertBatch, expert_readings
from grpodoctor.measure.groups import group_readings, groups_of, place_readings
from grpodoctor.measure.mismatch import mismatch_readings
from grpodoctor.measure.responses import (
    advantage_readings,
    entropy_readings,
    length_readings,
    loss_mask_readings,
    reward_readings,
    staleness_readings,
)
from grpodoctor.measure.same_answers import same_answer_readings_of
from grpodoctor.measure.text import text_readings
from grpodoctor.measure.updates import update_readings
from grpodoctor.vocabulary.values import Mean, Reading, merge_all


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """The data of a training step to measure; plain data, so that any process can measure it."""

    rollouts: RolloutBatch
    updates: Sequence[UpdateBatch] = ()
    """The optimizer steps on the rollouts, in order; empty if they were not captured."""
    on_policy: bool = False
    """Whether there is one update per batch with the learner's own old log-probabilities; clipping
    has no meaning then."""
    experts: ExpertBatch | None = None
    """None for a dense model, and if routing was not captured."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """Readings from the trainer itself, such as times, evaluation and weight changes. They take
    precedence."""


def held_bytes(*batches: StepBatch | RolloutBatch | Mapping[str, Reading] | None) -> int:
    """Bytes of the arrays and texts that batches keep in memory; readings count as nothing."""
    parts: list[object] = []
    for batch in batches:
        if isinstance(batch, StepBatch):
            parts += [batch.rollouts, *batch.updates, batch.experts]
        elif isinstance(batch, RolloutBatch):
            parts.append(batch)
    distinct = {id(each): each for each in parts if each is not None}
    return sum(_bytes_of_fields(each) for each in distinct.values())


def _bytes_of_fields(batch: Any) -> int:
    total = 0
    for each in fields(batch):
        value = getattr(batch, each.name)
        if isinstance(value, Mapping):
            total += sum(getattr(item, "nbytes", 0) for item in value.values())
        elif isinstance(value, list):
            total += sum(len(item) for item in value if isinstance(item, str))
        else:
            total += getattr(value, "nbytes", 0)
    return total


def step_readings(batch: StepBatch) -> dict[str, Reading]:
    """All readings of a step, by canonical metric name.

    The updates are measured one by one: the tokens of highest entropy are selected within an
    update, so measuring all updates at once would give another number.
    """
    return {
        **rollout_readings(batch.rollouts),
        **_update_readings(batch),
        **({} if batch.experts is None else expert_readings(batch.experts)),
        **batch.readings,
    }


def _update_readings(batch: StepBatch) -> dict[str, Reading]:
    if not batch.updates:
        return {}
    readings = (update_readings(update, on_policy=batch.on_policy) for update in batch.updates)
    merged = reduce(merge_all, readings)
    return {**merged, "updates_per_batch": Mean.of([len(batch.updates)])}


def rollout_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """All readings of a rollout batch, by canonical metric name.

    A metric whose input is missing is left out. A metric that has no meaning for this batch is
    `NotApplicable`. A batch without responses has no readings.
    """
    if not batch.sequence_ids:
        return {}
    groups = groups_of(batch.group_ids_B)
    return {
        **reward_readings(batch),
        **length_readings(batch),
        **entropy_readings(batch),
        **group_readings(batch, groups),
        **place_readings(batch, groups),
        **agreement_of(batch, groups),
        **same_answer_readings_of(batch, groups),
        **answers_of(batch),
        **advantage_readings(batch, groups),
        **loss_mask_readings(batch),
        **staleness_readings(batch),
        **mismatch_readings(batch),
        **text_readings(batch),
    }
