"""A rollout batch for the updates, and its mini-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.corrections.base import Corrected
from grpodoctor.trainer.moe.routes import Gates, ReplayCounts
from grpodoctor.trainer.samples import Samples


@dataclass(frozen=True, slots=True)
class ValueBatch:
    """A rollout batch for the critic."""

    samples: Samples
    mask_BT: Tensor
    """Tokens in the loss, bool."""
    values_BT: Tensor
    """The critic's values before its first update on the batch; zero outside the tokens."""
    returns_BT: Tensor
    """Targets of the critic, float32."""
    outcomes_BT: Tensor
    """Observed return after each token, that is with lambda 1, float32."""


@dataclass(frozen=True, slots=True)
class LearnBatch:
    """A rollout batch for the updates; zero outside the mask."""

    samples: Samples
    group_ids_B: Tensor
    kept_B: Tensor
    """Responses to train on, bool, in whole groups."""
    advantages_BT: Tensor
    """Final advantages, including all token weights."""
    loss_mask_BT: Tensor
    old_logprobs_BT: Tensor
    corrected: Corrected | None
    reference_logprobs_BT: Tensor | None
    pass_mask_BT: Tensor | None = None
    """Tokens of this pass if a batch has several passes."""
    kl_penalty_B: Tensor | None = None
    """KL penalty subtracted from the rewards; None if it is in the loss or absent."""
    correct_B: Tensor | None = None
    """Correct responses, bool; None if correctness is not reported."""
    values: ValueBatch | None = None
    """None without a critic."""
    replay_BLDK: Tensor | None = None
    """Experts that the updates must use; None for no constraint."""
    old_gates: Gates | None = None
    """The old policy's routing; None if the loss does not need it."""


@dataclass(frozen=True, slots=True)
class Update:
    """The result of one optimizer step."""

    rows_M: Tensor
    """Indices of its responses in the batch."""
    new_logprobs_MT: Tensor
    clipped_low_MT: Tensor | None
    """(M, T), or (M, 1) if the loss clips whole responses; None if it does not clip."""
    clipped_high_MT: Tensor | None
    gate_MT: Tensor | None
    """None if the loss has no soft gate."""
    stale_M1: Tensor | None
    """Responses masked as off-policy; None if `loss.off_policy_limit` is unset."""
    loss: float
    grad_norm: float
    """Before clipping."""
    applied: bool
    """Whether the weights changed; false if the loss or gradient is not finite."""
    positive_nll: float | None = None
    """-log p per token of correct responses, unweighted; None if the loss has no such term or no
    response was correct."""
    pass_mask_MT: Tensor | None = None
    """Trained tokens; None for all loss tokens."""
    chosen_MT: Tensor | None = None
    """Tokens selected by the loss's `select_tokens`; None without one."""
    replayed: ReplayCounts | None = None
    """Counts of the routing replay; None without replay."""


def chunks(count: int, size: int) -> Iterator[Tensor]:
    """The row numbers 0 .. count - 1 in pieces of `size`; in one piece if `size` is 0."""
    rows = torch.arange(count)
    for start in range(0, count, size or count):
        yield rows[start : start + (size or count)]


def mini_batches(
    group_ids_B: Tensor, kept_B: Tensor, updates: int, epochs: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """Row indices of each optimizer step: groups are shuffled and stay together.

    If fewer groups are kept than updates requested, there are fewer updates.

    `kept_B` contains whole groups. `updates` counts the optimizer steps of all epochs together.
    """
    kept_G = torch.unique(group_ids_B[kept_B]).cpu()
    for _ in range(epochs):
        order_G = kept_G[torch.randperm(len(kept_G), generator=generator)]
        for groups in order_G.tensor_split(updates // epochs):
            if len(groups):
                yield torch.isin(group_ids_B, groups.to(group_ids_B.device)).nonzero().flatten()
