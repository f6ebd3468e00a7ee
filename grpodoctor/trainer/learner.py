"""The learner: takes optimiser steps on a rollout batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from grpodoctor.measure.logits import token_logprobs
from grpodoctor.trainer.aggregation import StepTokens, token_weights
from grpodoctor.trainer.batches import LearnBatch, Update, chunks
from grpodoctor.trainer.config import TrainConfig
from grpodoctor.trainer.forward import response_logits
from grpodoctor.trainer.loss_settings import LossConfig
from grpodoctor.trainer.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.penalties import penalties
from grpodoctor.trainer.registry import choice_of, loss_of
from grpodoctor.trainer.sampler import Samples
from grpodoctor.trainer.sections import OptimiserConfig
from grpodoctor.trainer.sequence_mask import stale_responses

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Look(NamedTuple):
    """What the current parameters say of some responses; with gradient unless it is switched off.

    Zeros outside the mask.
    """

    logprobs_BT: Tensor
    entropy_BT: Tensor | None
    """None where the loss does not want it."""


class _Part(NamedTuple):
    """One micro-batch's share of an optimiser step."""

    loss: Tensor
    new_logprobs_BT: Tensor
    """Without gradient."""
    terms: LossTerms
    stale_B1: Tensor | None


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

        The loss is divided by the whole step's denominators, and what a loss chooses among the
        step's tokens it chooses before the first micro-batch: splitting changes nothing.
        """
        weights_MT = self._token_weights(batch, rows_M, config)
        chosen_MT = self._choose(batch, rows_M, config)
        parts = []
        for rows in chunks(len(rows_M), config.optimiser.micro_batch):
            chosen_BT = None if chosen_MT is None else chosen_MT[rows]
            part = self._forward(batch, rows_M[rows], weights_MT[rows], chosen_BT, config)
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

    def _choose(self, batch: LearnBatch, rows_M: Tensor, config: TrainConfig) -> Tensor | None:
        """The tokens that a loss singles out of the whole step; None for a loss without a choice.

        It costs a pass of its own, because the choice must not depend on the micro-batches.
        """
        choose = choice_of(config.loss.kind)
        if choose is None:
            return None
        with torch.no_grad():
            looks = [
                self._look(batch.samples.rows(rows_M[rows]), config)
                for rows in chunks(len(rows_M), config.optimiser.micro_batch)
            ]
        look = Look(torch.cat([each.logprobs_BT for each in looks]), None)
        return choose(_loss_inputs(batch, rows_M, look, None, config))

    def _forward(
        self,
        batch: LearnBatch,
        rows_B: Tensor,
        weights_BT: Tensor,
        chosen_BT: Tensor | None,
        config: TrainConfig,
    ) -> _Part:
        look = self._look(batch.samples.rows(rows_B), config)
        inputs = _loss_inputs(batch, rows_B, look, chosen_BT, config)
        terms, stale_B1 = loss_of(config.loss.kind)(inputs), None
        loss_BT = terms.loss_BT
        if config.loss.off_policy_limit is not None:
            stale_B1 = stale_responses(inputs, config.loss.off_policy_limit)
            loss_BT = torch.where(stale_B1, 0.0, loss_BT)
        if batch.corrected is not None:
            loss_BT = loss_BT * batch.corrected.weights_BT[rows_B]
        loss_BT = loss_BT + penalties(batch, rows_B, look.logprobs_BT, look.entropy_BT, config.loss)
        total = (torch.where(inputs.mask_BT, loss_BT, 0.0) * weights_BT).sum()
        return _Part(total, look.logprobs_BT.detach(), terms, stale_B1)

    def _look(self, samples: Samples, config: TrainConfig) -> Look:
        mask_BT, temperature = samples.mask_BT, config.rollout.temperature
        logits_NV = response_logits(
            self.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        ).flatten(0, 1)
        ids_N = samples.response_BT.flatten()
        if config.loss.entropy_coefficient == 0:
            logprobs_N = token_logprobs(logits_NV, ids_N, temperature)
            return Look(torch.where(mask_BT, logprobs_N.view_as(mask_BT), 0.0), None)
        logprobs_N, entropy_N = token_logprobs(logits_NV, ids_N, temperature, with_entropy=True)
        return Look(
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


def _loss_inputs(
    batch: LearnBatch, rows_B: Tensor, look: Look, chosen_BT: Tensor | None, config: TrainConfig
) -> LossInputs[LossConfig]:
    return LossInputs(
        new_logprobs_BT=look.logprobs_BT,
        old_logprobs_BT=batch.old_logprobs_BT[rows_B],
        sampler_logprobs_BT=batch.samples.logprobs_BT[rows_B],
        advantages_BT=batch.advantages_BT[rows_B],
        mask_BT=batch.loss_mask_BT[rows_B],
        settings=config.loss,
        chosen_BT=chosen_BT,
    )


def _join(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The micro-batches' parts as one; a loss that lacks them lacks them always."""
    there = [part for part in parts if part is not None]
    return torch.cat(there) if there else None
