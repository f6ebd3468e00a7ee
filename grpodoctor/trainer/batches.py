"""A rollout batch as the updates see it, and how it is divided among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from grpodoctor.trainer.corrections.base import Corrected
from grpodoctor.trainer.sampler import Samples
from grpodoctor.trainer.sections import OptimiserConfig


@dataclass(frozen=True, slots=True)
class LearnBatch:
    """A rollout batch as the updates see it. Positions outside the mask hold zeros."""

    samples: Samples
    group_ids_B: Tensor
    advantages_BT: Tensor
    """Final: whatever weighs single tokens is in them."""
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


def chunks(count: int, size: int) -> Iterator[Tensor]:
    """The row numbers 0 .. count - 1 in pieces of `size`; in one piece if `size` is 0."""
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
