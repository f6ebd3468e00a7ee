"""Penalties added to any loss: the KL penalty to the reference, minus the entropy bonus."""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.batches import LearnBatch
from grpodoctor.trainer.algorithms.entropy.bonus import bonus
from grpodoctor.trainer.algorithms.kl.base import KlInputs
from grpodoctor.trainer.algorithms.losses.settings import LossConfig
from grpodoctor.trainer.algorithms.registry import kl_of


def penalties(
    batch: LearnBatch,
    rows_B: Tensor,
    new_logprobs_BT: Tensor,
    entropy_BT: Tensor | None,
    loss: LossConfig,
) -> Tensor:
    """The penalties per token, shape (B, T); they have the loss's denominator.

    A KL penalty in the reward is not part of the loss.

    `rows_B` selects the responses; their log-probabilities and entropies carry gradients.
    """
    total_BT = torch.zeros_like(new_logprobs_BT)
    if batch.reference_logprobs_BT is not None and loss.kl_placement == "loss":
        inputs = KlInputs(
            new_logprobs_BT, batch.reference_logprobs_BT[rows_B], batch.old_logprobs_BT[rows_B]
        )
        total_BT = total_BT + loss.kl_coefficient * kl_of(loss.kl_estimator)(inputs)
    if entropy_BT is not None:
        total_BT = total_BT + bonus(entropy_BT, loss.entropy_coefficient)
    return total_BT
