"""The learner: takes optimizer steps on a rollout batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from grpodoctor.measure.logits import token_logprobs
from grpodoctor.trainer.algorithms.aggregation import StepTokens, token_weights
from grpodoctor.trainer.algorithms.batches import LearnBatch, Update, chunks
from grpodoctor.trainer.algorithms.losses.base import LossInputs, LossTerms, TopTokens
from grpodoctor.trainer.algorithms.penalties import penalties
from grpodoctor.trainer.algorithms.positive_nll import positive_weights
from grpodoctor.trainer.algorithms.registry import choice_of, loss_of
from grpodoctor.trainer.algorithms.sequence_mask import stale_responses
from grpodoctor.trainer.config.loss_settings import LossConfig
from grpodoctor.trainer.config.sections import OptimizerConfig
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.model.adamw import build_adamw, take_step
from grpodoctor.trainer.model.forward import recomputing, response_logits
from grpodoctor.trainer.model.scoring import top_logprobs
from grpodoctor.trainer.moe.routers import Routers, RoutingRecord
from grpodoctor.trainer.moe.routes import ReplayCounts, replay_counts, router_shift, sum_counts
from grpodoctor.trainer.samples import Samples

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ForwardOutput(NamedTuple):
    """What the current parameters say of some responses; with gradient unless it is switched off.

    Zeros outside the mask.
    """

    logprobs_BT: Tensor
    entropy_BT: Tensor
    top: TopTokens | None = None
    """None where the sampler was not asked for its likeliest tokens."""


class _Part(NamedTuple):
    """One micro-batch's share of an optimizer step."""

    loss: Tensor
    new_logprobs_BT: Tensor
    terms: LossTerms
    stale_B1: Tensor | None
    positive: Tensor | None = None
    """What of the loss is the likelihood of correct responses; None where it has no such part."""
    replayed: ReplayCounts | None = None
    """How the replay of experts went; None where there was none."""

    def with_positive(self, weights_BT: Tensor) -> _Part:
        """The same with the likelihood of correct responses added to the loss."""
        positive = -(weights_BT * self.new_logprobs_BT).sum()
        return self._replace(loss=self.loss + positive, positive=positive)

    def detach(self) -> _Part:
        """The same without a way back to the parameters, whose activations it would keep."""
        positive = None if self.positive is None else self.positive.detach()
        return self._replace(
            loss=self.loss.detach(),
            new_logprobs_BT=self.new_logprobs_BT.detach(),
            positive=positive,
        )


class Learner:
    """A model and its optimizer.

    Args:
        model: in evaluation mode, so that dropout is off and the ratio starts at one.
        config: of the optimizer.
        ranks: who takes part; the model is then divided among them.
    """

    def __init__(
        self, model: PreTrainedModel, config: OptimizerConfig, ranks: Ranks = SINGLE_PROCESS
    ) -> None:
        self.model, self._ranks = model, ranks
        self.routers: Routers | None = None
        """The model's, while batches may ask for their replay or their shift."""
        self.parameters = [each for each in model.parameters() if each.requires_grad]
        self.optimizer = build_adamw(self.parameters, config, config.learning_rate)

    def reusable_forward(self, samples: Samples, config: TrainConfig) -> ForwardOutput | None:
        """The forward pass of the only update that a batch will see; None if that is not known.

        It looks at the weights that score the batch: one pass serves both, its graph is kept.
        """
        sizes, alone = config.optimizer, self._ranks.world == 1 and self.routers is None
        updates = sizes.updates_per_batch * config.reweighting.passes
        if updates > 1 or not alone or 0 < sizes.micro_batch < len(samples):
            return None
        return self._look(samples, config)

    def update(
        self,
        batch: LearnBatch,
        rows_M: Tensor,
        config: TrainConfig,
        learning_rate: float,
        chance: torch.Generator,
        ahead: ForwardOutput | None = None,
    ) -> Update:
        """Take one optimizer step on some responses of a batch.

        Args:
            batch: the rollout batch.
            rows_M: which responses of it.
            config: in force.
            learning_rate: of this step.
            chance: for what a loss chooses among the tokens; the same on every rank.
            ahead: what `reusable_forward` gave for the batch.

        The loss is divided by the whole step's denominators, and what a loss chooses among the
        step's tokens it chooses before the first micro-batch: splitting changes nothing. Each rank
        takes a share of the responses; gradients are summed, and all see what came of it.
        """
        weights_MT = self._token_weights(batch, rows_M, config)
        chosen_MT = self._choose(batch, rows_M, config, chance)
        positive_MT = positive_weights(batch, rows_M, config.loss.positive_nll)
        ahead = ahead if len(rows_M) == len(batch.samples) else None
        parts = []
        for rows, real_B1 in self._micro_batches(rows_M, config):
            chosen_BT = None if chosen_MT is None else chosen_MT[rows]
            weights_BT = torch.where(real_B1, weights_MT[rows], 0.0)
            with self._watched(batch, rows_M[rows]) as tape:
                part = self._forward(
                    batch, rows_M[rows], weights_BT, chosen_BT, tape, config, ahead
                )
                if positive_MT is not None:
                    part = part.with_positive(torch.where(real_B1, positive_MT[rows], 0.0))
                torch.autograd.backward(part.loss)
            parts.append(part.detach())
        parts = self._of_all_ranks(parts, len(rows_M))
        loss_sum = float(torch.stack([part.loss for part in parts]).sum())
        max_norm = config.optimizer.max_grad_norm
        grad_norm, applied = take_step(self.optimizer, loss_sum, max_norm, learning_rate)
        pass_mask_BT = batch.pass_mask_BT
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
            _positive_nll(parts, config.loss.positive_nll),
            replayed=sum_counts([part.replayed for part in parts]),
            pass_mask_MT=None if pass_mask_BT is None else pass_mask_BT[rows_M],
            chosen_MT=chosen_MT,
        )

    def _micro_batches(
        self, rows_M: Tensor, config: TrainConfig
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Places in `rows_M` of this rank's share, in pieces, and which are no filler, (B, 1)."""
        share = self._ranks.share(len(rows_M))
        for rows in chunks(len(share.rows), config.optimizer.micro_batch):
            yield share.rows[rows], share.real[rows, None].to(rows_M.device)

    def _of_all_ranks(self, parts: list[_Part], count: int) -> list[_Part]:
        """The parts of all ranks as one of `count` rows; those of one alone as they are."""
        if self._ranks.world == 1:
            return parts

        def joined(pieces: Sequence[Tensor | None]) -> Tensor | None:
            own = _join(pieces)
            return None if own is None else self._ranks.gather_rows(own.detach(), count)

        flags = ("clipped_low_BT", "clipped_high_BT", "gate_BT")
        terms: dict[str, Any] = {
            name: joined([getattr(part.terms, name) for part in parts]) for name in flags
        }
        positives = [part.positive for part in parts if part.positive is not None]
        counts = sum_counts([part.replayed for part in parts])
        whole = _Part(
            self._ranks.sum(torch.stack([part.loss for part in parts]).sum()),
            self._ranks.gather_rows(torch.cat([part.new_logprobs_BT for part in parts]), count),
            replace(parts[0].terms, **terms),
            joined([part.stale_B1 for part in parts]),
            self._ranks.sum(torch.stack(positives).sum()) if positives else None,
            None if counts is None else ReplayCounts(*map(self._ranks.sum, counts)),
        )
        return [whole]

    @staticmethod
    def _token_weights(batch: LearnBatch, rows_M: Tensor, config: TrainConfig) -> Tensor:
        """By the step's denominators; nothing for tokens whose turn is in another pass."""
        mask_MT = batch.loss_mask_BT[rows_M]
        if batch.corrected is not None and config.correction.denominator == "kept":
            mask_MT = mask_MT & (batch.corrected.weights_BT[rows_M] != 0)
        tokens = StepTokens(mask_MT, batch.group_ids_B[rows_M], config.rollout.max_length)
        weights_MT = token_weights(config.loss.aggregation, tokens).float()
        if batch.pass_mask_BT is None:
            return weights_MT
        return torch.where(batch.pass_mask_BT[rows_M], weights_MT, 0.0)

    def _choose(
        self, batch: LearnBatch, rows_M: Tensor, config: TrainConfig, chance: torch.Generator
    ) -> Tensor | None:
        """The tokens that a loss singles out of the whole step; None for a loss without a choice.

        It costs a pass of its own, because the choice must not depend on the micro-batches.
        """
        choose = choice_of(config.loss.kind)
        if choose is None:
            return None
        with torch.no_grad():
            looks = []
            for rows, _ in self._micro_batches(rows_M, config):
                with self._watched(batch, rows_M[rows]):
                    looks.append(self._look(batch.samples.rows(rows_M[rows]), config))
        logprobs_MT = torch.cat([each.logprobs_BT for each in looks])
        logprobs_MT = self._ranks.gather_rows(logprobs_MT, len(rows_M))
        return choose(_loss_inputs(batch, rows_M, logprobs_MT, config), chance)

    def _forward(
        self,
        batch: LearnBatch,
        rows_B: Tensor,
        weights_BT: Tensor,
        chosen_BT: Tensor | None,
        tape: RoutingRecord | None,
        config: TrainConfig,
        ahead: ForwardOutput | None,
    ) -> _Part:
        look = ahead or self._look(batch.samples.rows(rows_B), config)
        inputs = _loss_inputs(batch, rows_B, look.logprobs_BT, config)
        inputs = replace(inputs, chosen_BT=chosen_BT, top=look.top)
        if tape is not None and batch.old_gates is not None:
            shift_BT = router_shift(batch.old_gates.rows(rows_B), tape)
            inputs = replace(inputs, router_shift_BT=shift_BT)
        terms, stale_B1 = loss_of(config.loss.kind)(inputs), None
        loss_BT = terms.loss_BT
        if config.loss.off_policy_limit is not None:
            stale_B1 = stale_responses(inputs, config.loss.off_policy_limit)
            loss_BT = torch.where(stale_B1, 0.0, loss_BT)
        if batch.corrected is not None:
            loss_BT = loss_BT * batch.corrected.weights_BT[rows_B]
        entropy_BT = look.entropy_BT if config.loss.entropy_coefficient else None
        loss_BT = loss_BT + penalties(batch, rows_B, look.logprobs_BT, entropy_BT, config.loss)
        total = (torch.where(inputs.mask_BT, loss_BT, 0.0) * weights_BT).sum()
        replayed = None
        if tape is not None and batch.replay_BLDK is not None:
            replayed = replay_counts(tape, batch.replay_BLDK[rows_B, :-1], weights_BT > 0)
        return _Part(total, look.logprobs_BT, terms, stale_B1, replayed=replayed)

    def _watched(
        self, batch: LearnBatch, rows_B: Tensor
    ) -> AbstractContextManager[RoutingRecord | None, bool | None]:
        """Replay and record the routing of some responses, where the batch wants either."""
        if self.routers is None or (batch.replay_BLDK is None and batch.old_gates is None):
            return nullcontext()
        replay_BLDK = batch.replay_BLDK
        return self.routers.watched(None if replay_BLDK is None else replay_BLDK[rows_B, :-1])

    def _look(self, samples: Samples, config: TrainConfig) -> ForwardOutput:
        mask_BT, temperature = samples.mask_BT, config.rollout.temperature
        with recomputing(self.model, enabled=config.model.gradient_checkpointing):
            logits_NV = response_logits(
                self.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
            ).flatten(0, 1)
        logprobs_BT, entropy_BT = (
            each.view_as(mask_BT)
            for each in token_logprobs(
                logits_NV, samples.response_BT.flatten(), temperature, with_entropy=True
            )
        )
        top = top_logprobs(samples, logits_NV, logprobs_BT, temperature)
        return ForwardOutput(
            torch.where(mask_BT, logprobs_BT, 0.0), torch.where(mask_BT, entropy_BT, 0.0), top
        )


def _loss_inputs(
    batch: LearnBatch, rows_B: Tensor, logprobs_BT: Tensor, config: TrainConfig
) -> LossInputs[LossConfig]:
    mask_BT = batch.loss_mask_BT[rows_B]
    return LossInputs(
        new_logprobs_BT=logprobs_BT,
        old_logprobs_BT=batch.old_logprobs_BT[rows_B],
        sampler_logprobs_BT=batch.samples.logprobs_BT[rows_B],
        # Not even a gradient of zero may meet what stands outside the mask: 0 * NaN is NaN.
        advantages_BT=torch.where(mask_BT, batch.advantages_BT[rows_B], 0.0),
        mask_BT=mask_BT,
        settings=config.loss,
    )


def _positive_nll(parts: Sequence[_Part], coefficient: float) -> float | None:
    """-log p per token of the step's correct responses; None where the loss has no such part."""
    there = [part.positive for part in parts if part.positive is not None]
    return float(torch.stack(there).sum()) / coefficient if there else None


def _join(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The micro-batches' parts as one; a loss that lacks them lacks them always."""
    there = [part for part in parts if part is not None]
    return torch.cat(there) if there else None
