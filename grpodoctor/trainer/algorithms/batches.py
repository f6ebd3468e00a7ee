"""A rollout batch as the updates see it, and how it is divided among them."""

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
    """A rollout batch as the critic sees it."""

    samples: Samples
    mask_BT: Tensor
    """Tokens that bear loss, bool."""
    values_BT: Tensor
    """The critic's own from before its first update on the batch; zeros outside the tokens."""
    returns_BT: Tensor
    """What it is to say, float32."""
    outcomes_BT: Tensor
    """What really came after each token: the return with lambda 1, float32."""


@dataclass(frozen=True, slots=True)
class LearnBatch:
    """A rollout batch as the updates see it. Positions outside the mask hold zeros."""

    samples: Samples
    group_ids_B: Tensor
    kept_B: Tensor
    """Which responses are learnt from, bool: whole groups."""
    advantages_BT: Tensor
    """Final: whatever weighs single tokens is in them."""
    loss_mask_BT: Tensor
    old_logprobs_BT: Tensor
    corrected: Corrected | None
    reference_logprobs_BT: Tensor | None
    pass_mask_BT: Tensor | None = None
    """Where a batch is learnt from in several passes: the tokens that this one learns from."""
    kl_penalty_B: Tensor | None = None
    """What a KL penalty took off the rewards; None where it is in the loss, or there is none."""
    correct_B: Tensor | None = None
    """Which responses are right, bool; None if nobody can tell."""
    values: ValueBatch | None = None
    """None where there is no critic."""
    replay_BLDK: Tensor | None = None
    """Experts to force in the updates, as `routing` describes; None leaves the routers free."""
    old_gates: Gates | None = None
    """The old policy's routing; None where the loss does not want it."""


@dataclass(frozen=True, slots=True)
class Update:
    """One optimizer step, as it went."""

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
    positive_nll: float | None = None
    """-log p per token of correct responses, without its weight; None where the loss has no such
    part or no response was correct."""
    pass_mask_MT: Tensor | None = None
    """Which tokens it learnt from; None for all that bear loss."""
    chosen_MT: Tensor | None = None
    """What the loss singled out among the tokens; None for a loss without a choice."""
    replayed: ReplayCounts | None = None
    """How the replay of experts went; None where there was none."""


def chunks(count: int, size: int) -> Iterator[Tensor]:
    """The row numbers 0 .. count - 1 in pieces of `size`; in one piece if `size` is 0."""
    rows = torch.arange(count)
    for start in range(0, count, size or count):
        yield rows[start : start + (size or count)]


def mini_batches(
    group_ids_B: Tensor, kept_B: Tensor, updates: int, epochs: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """The rows of each optimizer step on a batch: groups are shuffled, and stay together.

    Where fewer groups are kept than there are to be steps, there are fewer steps.

    Args:
        group_ids_B: responses of one prompt share it.
        kept_B: which responses are learnt from, bool: whole groups.
        updates: optimizer steps in all epochs together.
        epochs: passes over the batch.
        generator: shuffles.
    """
    kept_G = torch.unique(group_ids_B[kept_B]).cpu()
    for _ in range(epochs):
        order_G = kept_G[torch.randperm(len(kept_G), generator=generator)]
        for groups in order_G.tensor_split(updates // epochs):
            if len(groups):
                yield torch.isin(group_ids_B, groups.to(group_ids_B.device)).nonzero().flatten()
