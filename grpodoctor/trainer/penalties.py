"""What is added to any loss: the KL penalty to the reference, less the entropy bonus."""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.batches import LearnBatch
from grpodoctor.trainer.kl import kl_penalty
from grpodoctor.trainer.loss_settings import LossConfig


def penalties(
    batch: LearnBatch,
    rows_B: Tensor,
    new_logprobs_BT: Tensor,
    entropy_BT: Tensor | None,
    loss: LossConfig,
) -> Tensor:
    """The penalties per token, shape (B, T); they share the loss's denominator.

    Args:
        batch: the rollout batch.
        rows_B: which responses of it.
        new_logprobs_BT: of these responses, with gradient.
        entropy_BT: the same; None without an entropy bonus.
        loss: the coefficients.
    """
    total_BT = torch.zeros_like(new_logprobs_BT)
    if batch.reference_logprobs_BT is not None:
        reference_BT = batch.reference_logprobs_BT[rows_B]
        penalty_BT = kl_penalty(loss.kl_estimator, new_logprobs_BT, reference_BT)
        total_BT = total_BT + loss.kl_coefficient * penalty_BT
    if entropy_BT is not None:
        total_BT = total_BT - loss.entropy_coefficient * entropy_BT
    return total_BT
