"""The optimizer steps of a loop, as far as the loop describes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.batch import RolloutBatch, UpdateBatch
from grpodoctor.vocabulary.values import ABSENT, Mean, Rate, Reading, merge_all

_NUMBERS = ("loss", "grad_norm", "learning_rate")
_ZERO = 0.0
"""Stands for a number that the loop did not give; its reading is then absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFacts:
    """What a loop gave about one optimizer step."""

    rows: slice | Sequence[int]
    """The responses in it."""
    loss: float | None
    grad_norm: float | None
    learning_rate: float | None
    clip_low: float | None
    clip_high: float | None
    dual_clip: float | None
    arrays: Mapping[str, NDArray[Any]]
    """Arrays of its tokens or responses."""

    @property
    def numbers(self) -> dict[str, float]:
        """The known numbers of the optimizer."""
        given = {name: getattr(self, name) for name in _NUMBERS}
        return {name: value for name, value in given.items() if value is not None}


Updates = tuple[list[UpdateBatch], dict[str, Reading], bool]
"""Updates to measure, finished readings, and whether clipping has no meaning."""


def update_batches(
    updates: Sequence[UpdateFacts],
    batch: RolloutBatch | None,
    reference_BT: NDArray[Any] | None = None,
) -> Updates:
    """The updates of a step.

    Without the log-probabilities and advantages of the tokens, only the numbers are recorded.

    Args:
        updates: the updates, in order.
        batch: the responses; None if the loop gave none.
        reference_BT: log-probabilities under the reference model.
    """
    if not updates:
        return [], {}, False
    if batch is None:
        return [], _plain_readings(updates), False
    batches = (_batch_of(each, updates, batch, reference_BT) for each in updates)
    known = [each for each in batches if each is not None]
    if len(known) < len(updates):
        return [], _plain_readings(updates), False
    given = {name for each in updates for name in each.numbers}
    absent: dict[str, Reading] = {f"optimizer/{name}": ABSENT for name in set(_NUMBERS) - given}
    return known, absent, len(updates) == 1 and batch.old_logprobs_BT is None


def _plain_readings(updates: Sequence[UpdateFacts]) -> dict[str, Reading]:
    readings: dict[str, Reading] = {}
    for update in updates:
        readings = merge_all(readings, _readings_of(update))
    return {**readings, "updates_per_batch": Mean.of([len(updates)])}


def _readings_of(update: UpdateFacts) -> dict[str, Reading]:
    numbers = update.numbers
    readings: dict[str, Reading] = {
        f"optimizer/{name}": Mean.of_number(value) for name, value in numbers.items()
    }
    judged = [numbers[name] for name in ("loss", "grad_norm") if name in numbers]
    if judged:
        readings["optimizer/nonfinite"] = Rate(int(not all(map(math.isfinite, judged))), 1)
    return readings


def _batch_of(
    update: UpdateFacts,
    updates: Sequence[UpdateFacts],
    batch: RolloutBatch,
    reference_BT: NDArray[Any] | None,
) -> UpdateBatch | None:
    """The update with its tokens; None if it lacks them."""
    rows, arrays, numbers = update.rows, update.arrays, update.numbers
    learner_BT = batch.learner_logprobs_BT
    new_MT = arrays.get("logprobs")
    if new_MT is None and learner_BT is not None and len(updates) == 1:
        new_MT = learner_BT[rows]  # the only update starts from the weights that were scored
    old_BT = learner_BT if batch.old_logprobs_BT is None else batch.old_logprobs_BT
    mask_MT = batch.loss_tokens_BT[rows]
    advantages_MT = _advantages(update, batch, mask_MT.shape)
    if new_MT is None or old_BT is None or advantages_MT is None:
        return None
    return UpdateBatch(
        sequence_ids=np.array(batch.sequence_ids, dtype=object)[rows].tolist(),
        new_logprobs_BT=new_MT,
        old_logprobs_BT=old_BT[rows],
        advantages_BT=advantages_MT,
        loss_mask_BT=mask_MT,
        loss=numbers.get("loss", _ZERO),
        grad_norm=numbers.get("grad_norm", _ZERO),
        learning_rate=numbers.get("learning_rate", _ZERO),
        clip_low=update.clip_low,
        clip_high=update.clip_high,
        dual_clip=update.dual_clip,
        weights_BT=arrays.get("weights"),
        clipped_low_BT=_flags(arrays.get("clipped_low")),
        clipped_high_BT=_flags(arrays.get("clipped_high")),
        entropy_BT=None if batch.entropy_BT is None else batch.entropy_BT[rows],
        reference_logprobs_BT=None if reference_BT is None else reference_BT[rows],
    )


def _advantages(
    update: UpdateFacts, batch: RolloutBatch, shape: tuple[int, ...]
) -> NDArray[Any] | None:
    given = update.arrays.get("advantages")
    if given is None:
        of_all = batch.advantages_B if batch.advantages_BT is None else batch.advantages_BT
        given = None if of_all is None else of_all[update.rows]
    if given is None or given.ndim == 2:
        return given
    return np.broadcast_to(given[:, None], shape)


def _flags(values: NDArray[Any] | None) -> NDArray[np.bool_] | None:
    return None if values is None else values.astype(bool)
