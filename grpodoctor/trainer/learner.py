"""The learner: takes the policy's optimizer steps on a rollout batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.aggregation import StepTokens, token_weights
from grpodoctor.trainer.algorithms.batches import LearnBatch, Update, chunks
from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms
from grpodoctor.trainer.algorithms.losses.settings import LossConfig
from grpodoctor.trainer.algorithms.penalties import penalties
from grpodoctor.trainer.algorithms.positive_nll import positive_weights
from grpodoctor.trainer.algorithms.registry import loss_of, token_selector_of
from grpodoctor.trainer.algorithms.sequence_mask import stale_responses
from grpodoctor.trainer.config.sections import OptimizerConfig
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.model.adamw import build_adamw, take_step
from grpodoctor.trainer.model.forward import gradient_checkpointing
from grpodoctor.trainer.model.forward_scores import ForwardOutput, forward_scores
from grpodoctor.trainer.moe.routers import Routers, RoutingRecord
from grpodoctor.trainer.moe.routes import ReplayCounts, replay_counts, router_shift, sum_counts
from grpodoctor.trainer.samples import Samples

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class _MicroBatchResult(NamedTuple):
    """One micro-batch's contribution to an optimizer step."""

    loss: Tensor
    new_logprobs_BT: Tensor
    terms: LossTerms
    stale_B1: Tensor | None
    positive: Tensor | None = None
    """The part of the loss that is the NLL of correct responses; None without such a term."""
    replayed: ReplayCounts | None = None
    """Counts of the expert replay; None without a replay."""

    def with_positive(self, weights_BT: Tensor) -> _MicroBatchResult:
        """A copy with the weighted NLL of correct responses added to the loss."""
        positive = -(weights_BT * self.new_logprobs_BT).sum()
        return self._replace(loss=self.loss + positive, positive=positive)

    def detach(self) -> _MicroBatchResult:
        """A copy without gradients, which would keep the activations in memory."""
        positive = None if self.positive is None else self.positive.detach()
        return self._replace(
            loss=self.loss.detach(),
            new_logprobs_BT=self.new_logprobs_BT.detach(),
            positive=positive,
        )


class Learner:
    """A model and its optimizer.

    The model is in evaluation mode, so that dropout is off and the ratio starts at one. With
    several ranks it is sharded.
    """

    def __init__(
        self, model: PreTrainedModel, config: OptimizerConfig, ranks: Ranks = SINGLE_PROCESS
    ) -> None:
        self.model, self._ranks = model, ranks
        self.routers: Routers | None = None
        """The model's routers, if the training replays experts or uses the router shift."""
        self.parameters = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = build_adamw(self.parameters, config, config.learning_rate)

    def reusable_forward(self, samples: Samples, config: TrainConfig) -> ForwardOutput | None:
        """Compute the forward pass of a batch's only update early, so that it scores the batch too.

        Both use the same weights, so one pass with its graph serves both.

        Returns:
            None if the batch gets several updates or micro-batches, is shared among ranks, or needs
            the routers.
        """
        optimizer = config.optimizer
        if self._ranks.world > 1 or self.routers is not None:
            return None
        updates = optimizer.updates_per_batch * config.reweighting.passes
        if updates > 1 or 0 < optimizer.micro_batch < len(samples):
            return None
        return self._forward(samples, config)

    def update(
        self,
        batch: LearnBatch,
        rows_M: Tensor,
        config: TrainConfig,
        learning_rate: float,
        generator: torch.Generator,
        forward: ForwardOutput | None = None,
    ) -> Update:
        """Take one optimizer step on some responses of a batch.

        Args:
            batch: the rollout batch.
            rows_M: the responses of the batch to learn from.
            config: configuration of the step.
            learning_rate: learning rate of the step.
            generator: randomness of a loss that selects tokens; the same on every rank.
            forward: the result of `reusable_forward` for the batch.

        Micro-batches do not change the result: the loss is divided by the denominators of the whole
        step, and a loss that selects tokens selects them before the first micro-batch. Each rank
        processes a share of the responses. Gradients are summed, and all ranks return the same.
        """
        chosen_MT = self._select_tokens(batch, rows_M, config, generator)
        forward = forward if len(rows_M) == len(batch.samples) else None
        parts = self._accumulate_gradients(batch, rows_M, config, chosen_MT, forward)
        parts = self._combine_ranks(parts, len(rows_M))
        loss_sum = float(torch.stack([part.loss for part in parts]).sum())
        max_norm = config.optimizer.max_grad_norm
        grad_norm, applied = take_step(self.optimizer, loss_sum, max_norm, learning_rate)
        pass_mask_BT = batch.pass_mask_BT
        return Update(
            rows_M=rows_M,
            new_logprobs_MT=torch.cat([part.new_logprobs_BT for part in parts]),
            clipped_low_MT=_concatenate([part.terms.clipped_low_BT for part in parts]),
            clipped_high_MT=_concatenate([part.terms.clipped_high_BT for part in parts]),
            gate_MT=_concatenate([part.terms.gate_BT for part in parts]),
            stale_M1=_concatenate([part.stale_B1 for part in parts]),
            loss=loss_sum,
            grad_norm=grad_norm,
            applied=applied,
            positive_nll=_positive_nll(parts, config.loss.positive_nll),
            replayed=sum_counts([part.replayed for part in parts]),
            pass_mask_MT=None if pass_mask_BT is None else pass_mask_BT[rows_M],
            chosen_MT=chosen_MT,
        )

    def _accumulate_gradients(
        self,
        batch: LearnBatch,
        rows_M: Tensor,
        config: TrainConfig,
        chosen_MT: Tensor | None,
        forward: ForwardOutput | None,
    ) -> list[_MicroBatchResult]:
        """Run the forward and backward passes of this rank's micro-batches."""
        weights_MT = self._token_weights(batch, rows_M, config)
        positive_MT = positive_weights(batch, rows_M, config.loss.positive_nll)
        parts = []
        for rows, real_B1 in self._micro_batches(rows_M, config):
            chosen_BT = None if chosen_MT is None else chosen_MT[rows]
            weights_BT = torch.where(real_B1, weights_MT[rows], 0.0)
            with self._recording(batch, rows_M[rows]) as record:
                part = self._micro_batch_loss(
                    batch, rows_M[rows], weights_BT, chosen_BT, record, config, forward
                )
                if positive_MT is not None:
                    part = part.with_positive(torch.where(real_B1, positive_MT[rows], 0.0))
                torch.autograd.backward(part.loss)
            parts.append(part.detach())
        return parts

    def _micro_batches(
        self, rows_M: Tensor, config: TrainConfig
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices into `rows_M` of this rank's micro-batches, and which are not filler, (B, 1)."""
        share = self._ranks.share(len(rows_M))
        for rows in chunks(len(share.rows), config.optimizer.micro_batch):
            yield share.rows[rows], share.real[rows, None].to(rows_M.device)

    def _combine_ranks(self, parts: list[_MicroBatchResult], count: int) -> list[_MicroBatchResult]:
        """The results of all ranks as one result of `count` rows; unchanged with one process."""
        if self._ranks.world == 1:
            return parts

        def gathered(tensors: Sequence[Tensor | None]) -> Tensor | None:
            tensor = _concatenate(tensors)
            return None if tensor is None else self._ranks.gather_rows(tensor.detach(), count)

        masks = ("clipped_low_BT", "clipped_high_BT", "gate_BT")
        terms: dict[str, Any] = {
            name: gathered([getattr(part.terms, name) for part in parts]) for name in masks
        }
        positives = [part.positive for part in parts if part.positive is not None]
        counts = sum_counts([part.replayed for part in parts])
        combined = _MicroBatchResult(
            loss=self._ranks.sum(torch.stack([part.loss for part in parts]).sum()),
            new_logprobs_BT=self._ranks.gather_rows(
                torch.cat([part.new_logprobs_BT for part in parts]), count
            ),
            terms=replace(parts[0].terms, **terms),
            stale_B1=gathered([part.stale_B1 for part in parts]),
            positive=self._ranks.sum(torch.stack(positives).sum()) if positives else None,
            replayed=None if counts is None else ReplayCounts(*map(self._ranks.sum, counts)),
        )
        return [combined]

    @staticmethod
    def _token_weights(batch: LearnBatch, rows_M: Tensor, config: TrainConfig) -> Tensor:
        """Weights from the step's denominators; zero for tokens that belong to another pass."""
        mask_MT = batch.loss_mask_BT[rows_M]
        if batch.corrected is not None and config.correction.denominator == "kept":
            mask_MT = mask_MT & (batch.corrected.weights_BT[rows_M] != 0)
        tokens = StepTokens(mask_MT, batch.group_ids_B[rows_M], config.rollout.max_length)
        weights_MT = token_weights(config.loss.aggregation, tokens).float()
        if batch.pass_mask_BT is None:
            return weights_MT
        return torch.where(batch.pass_mask_BT[rows_M], weights_MT, 0.0)

    def _select_tokens(
        self, batch: LearnBatch, rows_M: Tensor, config: TrainConfig, generator: torch.Generator
    ) -> Tensor | None:
        """The tokens that the loss selects from the whole step; None for a loss that selects none.

        It costs an extra forward pass, because the selection must not depend on the micro-batches.
        """
        select_tokens = token_selector_of(config.loss.kind)
        if select_tokens is None:
            return None
        with torch.no_grad():
            outputs = []
            for rows, _ in self._micro_batches(rows_M, config):
                with self._recording(batch, rows_M[rows]):
                    outputs.append(self._forward(batch.samples.rows(rows_M[rows]), config))
        logprobs_MT = torch.cat([output.logprobs_BT for output in outputs])
        logprobs_MT = self._ranks.gather_rows(logprobs_MT, len(rows_M))
        return select_tokens(_loss_inputs(batch, rows_M, logprobs_MT, config), generator)

    def _micro_batch_loss(
        self,
        batch: LearnBatch,
        rows_B: Tensor,
        weights_BT: Tensor,
        chosen_BT: Tensor | None,
        record: RoutingRecord | None,
        config: TrainConfig,
        forward: ForwardOutput | None,
    ) -> _MicroBatchResult:
        output = forward or self._forward(batch.samples.rows(rows_B), config)
        inputs = _loss_inputs(batch, rows_B, output.logprobs_BT, config)
        inputs = replace(inputs, chosen_BT=chosen_BT, top=output.top)
        if record is not None and batch.old_gates is not None:
            shift_BT = router_shift(batch.old_gates.rows(rows_B), record)
            inputs = replace(inputs, router_shift_BT=shift_BT)
        terms, stale_B1 = loss_of(config.loss.kind)(inputs), None
        loss_BT = terms.loss_BT
        if config.loss.off_policy_limit is not None:
            stale_B1 = stale_responses(inputs, config.loss.off_policy_limit)
            loss_BT = torch.where(stale_B1, 0.0, loss_BT)
        if batch.corrected is not None:
            loss_BT = loss_BT * batch.corrected.weights_BT[rows_B]
        entropy_BT = output.entropy_BT if config.loss.entropy_coefficient else None
        loss_BT = loss_BT + penalties(batch, rows_B, output.logprobs_BT, entropy_BT, config.loss)
        total = (torch.where(inputs.mask_BT, loss_BT, 0.0) * weights_BT).sum()
        replayed = None
        if record is not None and batch.replay_BLDK is not None:
            replayed = replay_counts(record, batch.replay_BLDK[rows_B, :-1], weights_BT > 0)
        return _MicroBatchResult(total, output.logprobs_BT, terms, stale_B1, replayed=replayed)

    def _recording(
        self, batch: LearnBatch, rows_B: Tensor
    ) -> AbstractContextManager[RoutingRecord | None, bool | None]:
        """Replay and record the routing of some responses, if the batch needs either."""
        if self.routers is None or (batch.replay_BLDK is None and batch.old_gates is None):
            return nullcontext()
        replay_BLDK = batch.replay_BLDK
        return self.routers.recording(None if replay_BLDK is None else replay_BLDK[rows_B, :-1])

    def _forward(self, samples: Samples, config: TrainConfig) -> ForwardOutput:
        with gradient_checkpointing(self.model, enabled=config.model.gradient_checkpointing):
            return forward_scores(self.model, samples, config.rollout.temperature, with_top=True)


def _loss_inputs(
    batch: LearnBatch, rows_B: Tensor, logprobs_BT: Tensor, config: TrainConfig
) -> LossInputs[LossConfig]:
    mask_BT = batch.loss_mask_BT[rows_B]
    return LossInputs(
        new_logprobs_BT=logprobs_BT,
        old_logprobs_BT=batch.old_logprobs_BT[rows_B],
        sampler_logprobs_BT=batch.samples.logprobs_BT[rows_B],
        # Positions outside the mask may hold NaN, and even a zero gradient times NaN is NaN.
        advantages_BT=torch.where(mask_BT, batch.advantages_BT[rows_B], 0.0),
        mask_BT=mask_BT,
        settings=config.loss,
    )


def _positive_nll(parts: Sequence[_MicroBatchResult], coefficient: float) -> float | None:
    """-log p per token of the step's correct responses; None if the loss has no such term."""
    positives = [part.positive for part in parts if part.positive is not None]
    return float(torch.stack(positives).sum()) / coefficient if positives else None


def _concatenate(tensors: Sequence[Tensor | None]) -> Tensor | None:
    """The micro-batches' tensors as one; None if there are none. A loss returns all or none."""
    present = [tensor for tensor in tensors if tensor is not None]
    return torch.cat(present) if present else None
