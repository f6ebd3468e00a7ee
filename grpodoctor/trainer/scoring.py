"""What a model thinks of tokens that are there already."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from grpodoctor.measure.logits import entropy_and_logprobs
from grpodoctor.trainer.batches import chunks
from grpodoctor.trainer.forward import response_logits
from grpodoctor.trainer.sampler import Samples

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Scores(NamedTuple):
    """What a model thinks of a batch's tokens; zeros outside the mask, no gradient."""

    logprobs_BT: Tensor
    entropy_BT: Tensor


def score(
    model: PreTrainedModel, samples: Samples, temperature: float, micro_batch: int = 0
) -> Scores:
    """Log-probabilities and entropies of a batch's tokens under a model, at a temperature.

    Args:
        model: any causal model with the learner's tokenizer.
        samples: B responses.
        temperature: divides the logits.
        micro_batch: responses per forward pass; 0 takes all at once.
    """
    parts = [
        _score_rows(model, samples.rows(rows), temperature)
        for rows in chunks(len(samples), micro_batch)
    ]
    return Scores(
        torch.cat([part.logprobs_BT for part in parts]),
        torch.cat([part.entropy_BT for part in parts]),
    )


@torch.no_grad()
def _score_rows(model: PreTrainedModel, samples: Samples, temperature: float) -> Scores:
    logits_BTV = response_logits(
        model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
    )
    entropy_N, logprobs_N = entropy_and_logprobs(
        logits_BTV.flatten(0, 1), samples.response_BT.flatten(), temperature
    )
    mask_BT = samples.mask_BT
    return Scores(
        torch.where(mask_BT, logprobs_N.view_as(mask_BT), 0.0),
        torch.where(mask_BT, entropy_N.view_as(mask_BT), 0.0),
    )
