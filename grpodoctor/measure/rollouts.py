"""All readings of a rollout batch."""

from __future__ import annotations

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.groups import group_readings, groups_of
from grpodoctor.measure.mismatch import mismatch_readings
from grpodoctor.measure.responses import (
    advantage_readings,
    entropy_readings,
    length_readings,
    reward_readings,
    staleness_readings,
)
from grpodoctor.measure.text import text_readings
from grpodoctor.vocabulary.values import Reading


def rollout_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """Every metric that a rollout batch gives, by canonical name.

    A metric whose input the batch lacks is left out; one that has no meaning for this batch is
    `NotApplicable`. A batch without responses gives nothing at all.
    """
    if not batch.sequence_ids:
        return {}
    groups = groups_of(batch.group_ids_B)
    return {
        **reward_readings(batch),
        **length_readings(batch),
        **entropy_readings(batch),
        **group_readings(batch, groups),
        **advantage_readings(batch, groups),
        **staleness_readings(batch),
        **mismatch_readings(batch),
        **text_readings(batch),
    }
