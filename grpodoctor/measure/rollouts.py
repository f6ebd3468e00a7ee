"""All readings of a rollout batch."""

from __future__ import annotations

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.vocabulary.values import Mean, Reading


def rollout_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """Every metric that a rollout batch gives, by canonical name.

    A metric whose input the batch lacks is left out; one that has no meaning for this batch is
    `NotApplicable`.
    """
    return {"reward/mean": Mean.of(batch.rewards_B)}
