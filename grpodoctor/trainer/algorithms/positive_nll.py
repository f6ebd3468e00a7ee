"""Negative log-likelihood of correct responses, added to any token-level loss.

Formula
    coefficient x mean over the tokens of correct responses of -log p. It is added to the loss
    unchanged: advantages, clip and corrections do not affect it.

Denominator
    Its own: the loss tokens of the correct responses of the whole optimizer step. A step without
    correct responses has no such term.

Settings
    loss.positive_nll 0; VAPO 0.1.

Effect on metrics
    optimizer/positive_nll and entropy/mean fall: the policy imitates its own correct responses,
    whatever their advantages.

Other implementations
    NeMo RL's positive_example_nll_weight divides by the tokens of the micro-batch, so its value
    depends on how a step is split.

Do not combine with
    Losses of one term per response, whose denominator counts responses. It overlaps with rejection
    sampling and supervised fine-tuning on correct responses.

Source
    VAPO, arXiv 2504.05118, section 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from grpodoctor.errors import DataError
from grpodoctor.trainer.algorithms.batches import LearnBatch


def positive_weights(batch: LearnBatch, rows_M: Tensor, coefficient: float) -> Tensor | None:
    """Weight of -log p for each token of an optimizer step, shape (M, T), float32.

    Returns:
        None if the coefficient is 0 or no response is correct.
    """
    if coefficient == 0 or batch.correct_B is None:
        return None
    chosen_MT = batch.loss_mask_BT[rows_M] & batch.correct_B[rows_M, None]
    count = int(chosen_MT.sum())
    if batch.pass_mask_BT is not None:  # the count covers all passes
        chosen_MT = chosen_MT & batch.pass_mask_BT[rows_M]
    return torch.where(chosen_MT, coefficient / count, 0.0) if count else None


def require_correctness(correct: Sequence[bool] | None, coefficient: float) -> None:
    """Check that the reward function reports correctness if the loss needs it.

    Raises:
        DataError: if the coefficient is above 0 and correctness is not reported.
    """
    if coefficient > 0 and correct is None:
        raise DataError(
            "the reward function does not report which responses are correct",
            where="loss.positive_nll",
            remedy="return booleans under the key correct from the reward function, "
            "or set loss.positive_nll=0",
        )
