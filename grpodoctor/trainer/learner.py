"""The learner: scores a rollout batch and takes optimiser steps on it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from grpodoctor.measure.logits import entropy_and_logprobs, token_logprobs
from grpodoctor.trainer.aggregation import StepTokens, token_weights
from grpodoctor.trainer.config import TrainConfig
from grpodoctor.trainer.corrections.base import Corrected
from grpodoctor.trainer.forward import response_logits
from grpodoctor.trainer.kl import kl_penalty
from grpodoctor.trainer.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.registry import loss_of
from grpodoctor.trainer.sampler import Samples
from grpodoctor.trainer.sections import OptimiserConfig
from grpodoctor.trainer.sequence_mask import stale_responses

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Scores(NamedTuple):
    """What a model thinks of a batch's tokens; zeros outside the mask, no gradient."""

    logprobs_BT: Tensor
    entropy_BT: Tensor


@dataclass(frozen=True, slots=True)
class LearnBatch:
    """A rollout batch as the updates see it. Positions outside the mask hold zeros."""

    samples: Samples
    group_ids_B: Tensor
    advantages_B: Tensor
    loss_mask_BT: Tensor
    old_logprobs_BT: Tensor
    corrected: Corrected | None
    reference_logprobs_BT: Tensor | None


@dataclass(frozen=True, slots=True)
class Update:
    """One optimiser step, as it went."""

    rows_M: Tensor
    """Which responses of the batch it saw."""
    new_logprobs_MT: Tensor
    clipped_low_MT: Tensor | None
    """(M, T), or (M, 1) where the loss clips whole responses; None where it clips nothing."""
    clipped_high_MT: Tensor | None
    gate_MT: Tensor | None
    """None where the loss has no soft gate."""
    stale_M1: Tensor | None
    """Which responses were left out as too far off-policy; None where none ever is."""
    loss: float
    grad_norm: float
    """Before clipping."""
    applied: bool
    """Whether the weights moved; they do not when loss or gradient is not finite."""


class _Part(NamedTuple):
    """One micro-batch's share of an optimiser step."""

    loss: Tensor
    new_logprobs_BT: Tensor
    """Without gradient."""
    terms: LossTerms
    stale_B1: Tensor | None


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
        for rows in _chunks(len(samples), micro_batch)
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


class Learner:
    """A model and its optimiser.

    Args:
        model: in evaluation mode, so that dropout is off and the ratio starts at one.
        config: of the optimiser.
    """

    def __init__(self, model: PreTrainedModel, config: OptimiserConfig) -> None:
        self.model = model
        self.parameters = [each for each in model.parameters() if each.requires_grad]
        self.optimiser = torch.optim.AdamW(
            self.parameters,
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
            fused=True,
        )

    def update(
        self, batch: LearnBatch, rows_M: Tensor, config: TrainConfig, learning_rate: float
    ) -> Update:
        """Take one optimiser step on some responses of a batch.

        The loss is divided by the whole step's denominators, so that micro-batches change nothing.
        """
        weights_MT = self._token_weights(batch, rows_M, config)
        parts = []
        for rows in _chunks(len(rows_M), config.optimiser.micro_batch):
            part = self._forward(batch, rows_M[rows], weights_MT[rows], config)
            torch.autograd.backward(part.loss)
            parts.append(part._replace(loss=part.loss.detach()))
        loss_sum = float(torch.stack([part.loss for part in parts]).sum())
        grad_norm, applied = self._step(loss_sum, config.optimiser.max_grad_norm, learning_rate)
        return Update(
            rows_M,
            torch.cat([part.new_logprobs_BT for part in parts]),
            _join([part.terms.clipped_low_BT for part in parts]),
            _join([part.terms.clipped_high_BT for part in parts]),
            _join([part.terms.gate_BT for part in parts]),
            _join([part.stale_B1 for part in parts]),
            loss_sum,
            grad_norm,
            applied,
        )

    @staticmethod
    def _token_weights(batch: LearnBatch, rows_M: Tensor, config: TrainConfig) -> Tensor:
        tokens = StepTokens(
            batch.loss_mask_BT[rows_M], batch.group_ids_B[rows_M], config.rollout.max_length
        )
        return token_weights(config.loss.aggregation, tokens).float()

    def _forward(
        self, batch: LearnBatch, rows_B: Tensor, weights_BT: Tensor, config: TrainConfig
    ) -> _Part:
        mask_BT, loss = batch.loss_mask_BT[rows_B], config.loss
        new_logprobs_BT, entropy_BT = self._look(batch.samples.rows(rows_B), config)
        inputs = LossInputs(
            new_logprobs_BT,
            batch.old_logprobs_BT[rows_B],
            batch.samples.logprobs_BT[rows_B],
            batch.advantages_B[rows_B, None].expand(mask_BT.shape),
            mask_BT,
            loss,
        )
        terms = loss_of(loss.kind)(inputs)
        loss_BT, stale_B1 = terms.loss_BT, None
        if loss.off_policy_limit is not None:
            stale_B1 = stale_responses(inputs, loss.off_policy_limit)
            loss_BT = torch.where(stale_B1, 0.0, loss_BT)
        if batch.corrected is not None:
            loss_BT = loss_BT * batch.corrected.weights_BT[rows_B]
        if batch.reference_logprobs_BT is not None:
            reference_BT = batch.reference_logprobs_BT[rows_B]
            penalty_BT = kl_penalty(loss.kl_estimator, new_logprobs_BT, reference_BT)
            loss_BT = loss_BT + loss.kl_coefficient * penalty_BT
        if entropy_BT is not None:
            loss_BT = loss_BT - loss.entropy_coefficient * entropy_BT
        total = (torch.where(mask_BT, loss_BT, 0.0) * weights_BT).sum()
        return _Part(total, new_logprobs_BT.detach(), terms, stale_B1)

    def _look(self, samples: Samples, config: TrainConfig) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities, and entropies where the loss wants them, with gradient."""
        mask_BT, temperature = samples.mask_BT, config.rollout.temperature
        logits_NV = response_logits(
            self.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        ).flatten(0, 1)
        ids_N = samples.response_BT.flatten()
        if config.loss.entropy_coefficient == 0:
            logprobs_N = token_logprobs(logits_NV, ids_N, temperature)
            return torch.where(mask_BT, logprobs_N.view_as(mask_BT), 0.0), None
        logprobs_N, entropy_N = token_logprobs(logits_NV, ids_N, temperature, with_entropy=True)
        return (
            torch.where(mask_BT, logprobs_N.view_as(mask_BT), 0.0),
            torch.where(mask_BT, entropy_N.view_as(mask_BT), 0.0),
        )

    def _step(self, loss: float, max_norm: float, learning_rate: float) -> tuple[float, bool]:
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, max_norm))
        applied = math.isfinite(loss) and math.isfinite(norm)
        if applied:
            for group in self.optimiser.param_groups:
                group["lr"] = learning_rate
            self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return norm, applied


def _join(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The micro-batches' parts as one; a loss that lacks them lacks them always."""
    there = [part for part in parts if part is not None]
    return torch.cat(there) if there else None


def _chunks(count: int, size: int) -> Iterator[Tensor]:
    rows = torch.arange(count)
    for start in range(0, count, size or count):
        yield rows[start : start + (size or count)]


def mini_batches(
    group_ids_B: Tensor, config: OptimiserConfig, generator: torch.Generator
) -> Iterator[Tensor]:
    """The rows of each optimiser step on a batch: groups are shuffled, and stay together.

    Args:
        group_ids_B: 0 .. number of groups - 1.
        config: how many steps, in how many passes.
        generator: shuffles.
    """
    for _ in range(config.epochs):
        order_G = torch.randperm(int(group_ids_B.max()) + 1, generator=generator)
        for groups in order_G.tensor_split(config.updates_per_batch // config.epochs):
            yield torch.isin(group_ids_B, groups).nonzero().flatten()
