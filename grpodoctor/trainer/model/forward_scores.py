"""Log-probabilities and entropies of a batch's tokens from one forward pass of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from grpodoctor.measure.hidden import score_hidden
from grpodoctor.measure.logits import token_logprobs
from grpodoctor.trainer.algorithms.losses.base import TopTokens
from grpodoctor.trainer.model.forward import response_logits
from grpodoctor.trainer.model.output_head import OutputHead, output_head
from grpodoctor.trainer.model.plain.scoring import plain_logits
from grpodoctor.trainer.model.plain.weights import PlainWeights, plain_weights
from grpodoctor.trainer.samples import Samples

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MOST_LOGITS = 1 << 24
"""Logits (tokens x vocabulary) that a pass forms: 64 MiB of float32, and as much for their
gradient. That is little next to a process that has imported torch, and larger logits are as fast to
score from the hidden states; with a gradient, that costs one more matrix product of the head."""


class ForwardOutput(NamedTuple):
    """Log-probabilities and entropies under the current parameters, zeros outside the mask.

    They carry gradients unless gradients are switched off.
    """

    logprobs_BT: Tensor
    entropy_BT: Tensor
    top: TopTokens | None = None
    """None if they were not asked for, or the sampler did not record its most likely tokens."""


def forward_scores(
    model: PreTrainedModel, samples: Samples, temperature: float, *, with_top: bool = False
) -> ForwardOutput:
    """Score a batch's tokens; without forming the logits if they are large.

    Args:
        model: a transformers causal language model.
        samples: the batch.
        temperature: divides the logits.
        with_top: whether to score the sampler's most likely tokens as well.
    """
    plain = None if with_top and samples.top is not None else plain_weights(model)
    if plain is not None:
        return _from_plain(plain, samples, temperature)
    head = output_head(model)
    if head is None or samples.response_BT.numel() * head.vocabulary <= _MOST_LOGITS:
        return _from_logits(model, samples, temperature, with_top=with_top)
    return _from_hidden(model, head, samples, temperature, with_top=with_top)


def _from_plain(weights: PlainWeights, samples: Samples, temperature: float) -> ForwardOutput:
    mask_BT, logits_NV = samples.mask_BT, plain_logits(weights, samples)
    scores = token_logprobs(logits_NV, samples.response_BT[mask_BT], temperature, with_entropy=True)
    logprobs_BT, entropy_BT = (_spread(values_N, mask_BT) for values_N in scores)
    return ForwardOutput(logprobs_BT, entropy_BT)


def _from_logits(
    model: PreTrainedModel, samples: Samples, temperature: float, *, with_top: bool
) -> ForwardOutput:
    logits_NV = response_logits(
        model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
    ).flatten(0, 1)
    mask_BT = samples.mask_BT
    logprobs_BT, entropy_BT = (
        torch.where(mask_BT, values_N.view_as(mask_BT), 0.0)
        for values_N in token_logprobs(
            logits_NV, samples.response_BT.flatten(), temperature, with_entropy=True
        )
    )
    top = None
    if with_top:
        top = top_tokens(
            samples, logprobs_BT, lambda ids_NK: logits_NV.gather(1, ids_NK).float() / temperature
        )
    return ForwardOutput(logprobs_BT, entropy_BT, top)


def _from_hidden(
    model: PreTrainedModel,
    head: OutputHead,
    samples: Samples,
    temperature: float,
    *,
    with_top: bool,
) -> ForwardOutput:
    outputs = []

    def read(hidden_BTD: Tensor) -> None:
        tensors, mask_BT = head.tensors(), samples.mask_BT
        ids_N = samples.response_BT[mask_BT]
        scores = score_hidden(hidden_BTD[mask_BT], tensors, ids_N, temperature)
        logprobs_BT, entropy_BT = (_spread(values_N, mask_BT) for values_N in scores)
        top, hidden_ND = None, hidden_BTD.flatten(0, 1)
        if with_top:
            top = top_tokens(
                samples,
                logprobs_BT,
                lambda ids_NK: tensors.logits_at(hidden_ND, ids_NK, temperature),
            )
        outputs.append(ForwardOutput(logprobs_BT, entropy_BT, top))

    with head.reading(read):
        logits_B0V = response_logits(
            model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        )
    # The sum is 0. FSDP gathers the head's weights for the backward pass of the model's output.
    nothing = logits_B0V.sum()
    (output,) = outputs
    return output._replace(
        logprobs_BT=output.logprobs_BT + nothing, entropy_BT=output.entropy_BT + nothing
    )


def _spread(values_N: Tensor, mask_BT: Tensor) -> Tensor:
    """The values of the tokens under the mask, zeros elsewhere."""
    zeros_BT = values_N.new_zeros(mask_BT.shape)
    return zeros_BT.masked_scatter(mask_BT, values_N)


@torch.no_grad()
def top_tokens(
    samples: Samples, logprobs_BT: Tensor, logits_at: Callable[[Tensor], Tensor]
) -> TopTokens | None:
    """Log-probabilities of the sampler's most likely tokens; None if it did not record them.

    Args:
        samples: the batch.
        logprobs_BT: of the sampled tokens.
        logits_at: from ids (N, K), N = B * T, to their logits over the temperature.
    """
    if samples.top is None:
        return None
    ids_BTK = samples.top.ids_BTK
    sampled_BT1 = samples.response_BT[..., None]
    top_NK, own_N1 = (logits_at(ids.flatten(0, 1)) for ids in (ids_BTK, sampled_BT1))
    new_BTK = (top_NK - own_N1).view_as(ids_BTK) + logprobs_BT.detach()[..., None]
    return TopTokens(samples.top.logprobs_BTK, new_BTK, ids_BTK == sampled_BT1)
