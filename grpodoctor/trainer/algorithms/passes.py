"""A rollout batch as one or more passes, after token reweighting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.batches import LearnBatch
from grpodoctor.trainer.algorithms.registry import reweighting_of
from grpodoctor.trainer.algorithms.reweightings.base import ReweightingInputs
from grpodoctor.trainer.algorithms.reweightings.settings import ReweightingConfig
from grpodoctor.vocabulary.values import Mean, Reading


class Passes(NamedTuple):
    """The batches of a training step, one per pass."""

    batches: Sequence[LearnBatch]
    """One per pass, in order."""
    readings: dict[str, Reading]


def passes_over(batch: LearnBatch, entropy_BT: Tensor, settings: ReweightingConfig) -> Passes:
    """Weight the tokens of a batch by all active reweightings."""
    if not settings.active:
        return Passes([batch], {})
    mask_BT = batch.loss_mask_BT
    inputs = ReweightingInputs(batch.old_logprobs_BT, entropy_BT, mask_BT, settings)
    factors_PBT = torch.ones_like(batch.advantages_BT)[None]
    for name in settings.active:
        factors_PBT = factors_PBT * reweighting_of(name)(inputs)
    several = len(factors_PBT) > 1
    batches = [
        replace(
            batch,
            advantages_BT=batch.advantages_BT * factor_BT,
            pass_mask_BT=factor_BT != 0 if several else None,
        )
        for factor_BT in factors_PBT
    ]
    weights_N = factors_PBT.sum(dim=0)[mask_BT]
    return Passes(batches, {"advantage/token_weight": Mean.of(weights_N.cpu().numpy())})
