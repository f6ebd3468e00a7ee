"""The critic: predicts the reward of a response before each of its tokens.

The critic starts as a copy of the whole policy, with adapters merged in, and has a head with one
output in place of the vocabulary. All its weights are trained, even if the policy trains only
adapters. They have the policy's dtype (the head is float32) and their own AdamW. A run with a
critic needs about twice the memory of one without; with LoRA, far more than twice.

Formula
    (V - R)^2 / 2 per token, R = A + V by the recursion of `gae` with critic.gae_lambda and the
    values V from before the batch's first update. With `value_clip` = c, the loss is the larger of
    this term and the same term with V moved by at most c. In the first `pretrain_steps` training
    steps R is the full return and the policy does not change.

Denominator
    The loss tokens of the whole optimizer step.

Source
    PPO, arXiv 1707.06347; value pre-training and decoupled lambdas, VC-PPO, arXiv 2503.01491, and
    VAPO, arXiv 2504.05118, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from grpodoctor.errors import ModelError
from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs
from grpodoctor.trainer.algorithms.advantages.gae import (
    generalized_advantages,
    policy_lambda,
    token_rewards,
)
from grpodoctor.trainer.algorithms.batches import ValueBatch, chunks
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.model.adamw import build_adamw, take_step
from grpodoctor.trainer.model.forward import (
    autocast_context,
    gradient_checkpointing,
    positions,
    set_compute_dtype,
)
from grpodoctor.trainer.model.lora import merged_copy
from grpodoctor.trainer.samples import Samples
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADVANTAGE = "gae"
"""The kind of advantage that needs a critic."""

_NO_VARIANCE = NotApplicable("every token has the same return: there is no variance to explain")


class ValueModel(nn.Module):
    """A causal language model whose output head is replaced by one number per position.

    Raises:
        ModelError: if the model's body cannot be separated from its head.
    """

    def __init__(self, policy: PreTrainedModel, config: TrainConfig) -> None:
        super().__init__()
        whole = merged_copy(policy)
        output = whole.get_output_embeddings()  # type: ignore[no-untyped-call]  # of transformers
        if whole.base_model is whole or output is None:
            raise ModelError(
                "this model cannot be used as a critic: its body and head cannot be separated",
                where=config.model.name,
                remedy="use an advantage without a critic, such as advantage.kind=group",
            )
        self.backbone = cast("PreTrainedModel", whole.base_model)
        if config.model.compute == "bfloat16":
            set_compute_dtype(self.backbone, torch.bfloat16)
        # A zero head predicts 0 everywhere at the start, identically on every machine.
        self.head = nn.Linear(output.weight.shape[1], 1, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.requires_grad_(requires_grad=True).train(mode=False)  # dropout stays off

    def forward(self, samples: Samples) -> Tensor:
        """The value before each token of the responses, shape (B, T), float32."""
        attention_BL = samples.attention_BL[:, :-1]
        with autocast_context(self.backbone):
            output = self.backbone(
                input_ids=samples.tokens_BL[:, :-1],
                attention_mask=attention_BL.long(),
                position_ids=positions(attention_BL),
                use_cache=False,
            )
        hidden_BTH = output.last_hidden_state[:, samples.prompt_width - 1 :]
        values_BT1: Tensor = self.head(hidden_BTH.float())
        return values_BT1.squeeze(-1)


@dataclass(frozen=True, slots=True)
class CriticUpdate:
    """The result of one optimizer step of the critic."""

    loss: float
    grad_norm: float
    """Before clipping."""
    applied: bool


class Critic:
    """A value model and its optimizer.

    With several ranks each holds the whole critic, and gradients are summed.

    Raises:
        ModelError: if the policy's body cannot be separated from its head.
    """

    def __init__(
        self, policy: PreTrainedModel, config: TrainConfig, ranks: Ranks = SINGLE_PROCESS
    ) -> None:
        self.model, self._ranks = ValueModel(policy, config), ranks
        self._parameters = list(self.model.parameters())
        self.optimizer = build_adamw(
            self._parameters, config.optimizer, config.critic.learning_rate
        )

    @torch.no_grad()
    def values(self, samples: Samples, micro_batch: int = 0) -> Tensor:
        """The value before each token, shape (B, T); zeros outside the tokens, no gradient."""
        own = samples.rows(self._ranks.share(len(samples)).rows)
        parts = [self.model(own.rows(rows)) for rows in chunks(len(own), micro_batch)]
        values_BT = self._ranks.gather_rows(torch.cat(parts), len(samples))
        return torch.where(samples.mask_BT, values_BT, 0.0)

    def learn(
        self, batch: ValueBatch, mini_batches: Iterable[Tensor], config: TrainConfig
    ) -> dict[str, Reading]:
        """Take an optimizer step on each mini-batch.

        Returns:
            The critic's readings by canonical name.
        """
        updates = [self.update(batch, rows_M, config) for rows_M in mini_batches]
        lambda_B = policy_lambda(config.advantage, batch.samples.mask_BT.sum(dim=1))
        return {
            "advantage/lambda_mean": Mean.of(lambda_B.cpu().numpy()),
            **value_readings(batch),
            **_update_readings(updates),
        }

    def update(self, batch: ValueBatch, rows_M: Tensor, config: TrainConfig) -> CriticUpdate:
        """Take one optimizer step on some responses of a batch.

        Each token's loss is divided by the tokens of the whole step, so micro-batches do not change
        the result.
        """
        weight = 1 / max(1, int(batch.mask_BT[rows_M].sum()))
        share = self._ranks.rows(len(rows_M))
        own = rows_M[share.start : share.stop]
        losses = [torch.zeros((), device=rows_M.device)]
        for rows in chunks(len(own), config.optimizer.micro_batch) if share else ():
            loss = self._loss(batch, own[rows], config) * weight
            torch.autograd.backward(loss)
            losses.append(loss.detach())
        self._ranks.sum_gradients(self._parameters)
        loss_sum = float(self._ranks.sum(torch.stack(losses).sum()))
        settings = config.critic
        norm, applied = take_step(
            self.optimizer, loss_sum, settings.max_grad_norm, settings.learning_rate
        )
        return CriticUpdate(loss_sum, norm, applied)

    def _loss(self, batch: ValueBatch, rows_B: Tensor, config: TrainConfig) -> Tensor:
        """The summed loss of some responses."""
        with gradient_checkpointing(self.model, enabled=config.model.gradient_checkpointing):
            values_BT = self.model(batch.samples.rows(rows_B))
        loss_BT = value_loss(
            values_BT, batch.values_BT[rows_B], batch.returns_BT[rows_B], config.critic.value_clip
        )
        return torch.where(batch.mask_BT[rows_B], loss_BT, 0.0).sum()


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float | None) -> Tensor:
    """Half the squared error, clipped pessimistically; all tensors have the same shape.

    Args:
        values: values under the current parameters, with gradient.
        old_values: values before the batch's first update.
        returns: target values.
        clip: maximum change of a value; beyond it the larger of the clipped and the unclipped error
            counts. None does not clip.
    """
    loss = (values - returns).square() / 2
    if clip is None:
        return loss
    bounded = old_values + (values - old_values).clamp(-clip, clip)
    return torch.maximum(loss, (bounded - returns).square() / 2)


def value_batch(
    samples: Samples, inputs: AdvantageInputs, config: TrainConfig, *, full_return: bool
) -> ValueBatch | None:
    """The batch that the critic learns from; None without a critic.

    `full_return` trains the critic on the full return, whatever `critic.gae_lambda` is.
    """
    tokens = inputs.tokens
    if tokens is None:
        return None
    values_BT, mask_BT = tokens.values_BT, tokens.mask_BT
    rewards_BT = token_rewards(inputs.rewards_B, mask_BT, tokens.rewards_BT)

    def returns(lambda_: float) -> Tensor:
        lambda_B = torch.full_like(rewards_BT[:, 0], lambda_)
        advantages_BT = generalized_advantages(
            rewards_BT, values_BT, mask_BT, lambda_B, config.advantage.discount
        )
        return (advantages_BT + values_BT).float()

    outcomes_BT, lambda_ = returns(1.0), 1.0 if full_return else config.critic.gae_lambda
    returns_BT = outcomes_BT if lambda_ == 1 else returns(lambda_)
    return ValueBatch(samples, tokens.loss_mask_BT, values_BT, returns_BT, outcomes_BT)


def value_readings(batch: ValueBatch) -> dict[str, Reading]:
    """How well the values before the update predict the returns; empty without loss tokens."""
    values_N = batch.values_BT[batch.mask_BT].double()
    outcomes_N = batch.outcomes_BT[batch.mask_BT].double()
    if not len(values_N):
        return {}
    error, variance = (outcomes_N - values_N).var(correction=0), outcomes_N.var(correction=0)
    explained = Mean.of([float(1 - error / variance)]) if variance > 0 else _NO_VARIANCE
    return {
        "critic/value_mean": Mean.of(values_N.cpu().numpy()),
        "critic/explained_variance": explained,
    }


def _update_readings(updates: Sequence[CriticUpdate]) -> dict[str, Reading]:
    if not updates:
        return {}
    return {
        "critic/loss": Mean.of([update.loss for update in updates]),
        "critic/grad_norm": Mean.of([update.grad_norm for update in updates]),
        "critic/skipped_rate": Rate.of([not update.applied for update in updates]),
    }
