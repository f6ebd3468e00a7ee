"""The likelihood of correct responses, beside any loss of single tokens.

Formula
    coefficient x sum over the tokens of correct responses of -log p / their number. It is added to
    the loss as it stands: neither its advantages nor its clip nor a correction have a part in it.

Denominator
    Its own: the loss tokens of the correct responses of the whole optimizer step. A step without
    any has no such part.

Settings
    loss.positive_nll 0; VAPO 0.1.

Effect on metrics
    optimizer/positive_nll and entropy/mean fall: the policy imitates its own successes, whatever
    their advantages.

Other implementations
    NeMo RL's positive_example_nll_weight divides by the tokens of the micro-batch, so that its
    value depends on how a step is split.

Do not combine with
    Losses of one term per response, whose denominator counts responses. It overlaps rejection
    sampling and supervised fine-tuning on correct responses.

Source
    VAPO, arXiv 2504.05118, section 4.3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.errors import DataError
from grpodoctor.trainer.algorithms.batches import LearnBatch
from grpodoctor.trainer.data.tasks.base import Rewards


def positive_weights(batch: LearnBatch, rows_M: Tensor, coefficient: float) -> Tensor | None:
    """What -log p of each token of an optimizer step counts, shape (M, T), float32.

    Args:
        batch: the rollout batch.
        rows_M: all responses of the optimizer step.
        coefficient: `loss.positive_nll`.

    Returns:
        None where there is no such part: no coefficient, or no correct response.
    """
    if coefficient == 0 or batch.correct_B is None:
        return None
    chosen_MT = batch.loss_mask_BT[rows_M] & batch.correct_B[rows_M, None]
    count = int(chosen_MT.sum())
    if batch.pass_mask_BT is not None:  # counted with all, imitated once
        chosen_MT = chosen_MT & batch.pass_mask_BT[rows_M]
    return torch.where(chosen_MT, coefficient / count, 0.0) if count else None


def refuse_unjudged(rewards: Rewards, coefficient: float) -> None:
    """Refuse rewards that do not say which responses are correct, where that is needed.

    Raises:
        DataError: if the coefficient is above 0 and nobody can tell.
    """
    if coefficient > 0 and rewards.correct is None:
        raise DataError(
            "nobody says which responses are correct, so that none can be imitated",
            where="loss.positive_nll",
            remedy="return verdicts under the key correct from the reward function, "
            "or set loss.positive_nll=0",
        )
