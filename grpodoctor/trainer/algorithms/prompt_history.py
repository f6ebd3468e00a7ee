"""Rewards of a prompt in earlier batches, for advantages that use more than one group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Visits(NamedTuple):
    """Statistics of the earlier rewards of G prompts, float64, shape (G,) each."""

    number_G: Tensor
    """Batches that contained the prompt."""
    count_G: Tensor
    """Rewards in all of these batches."""
    mean_G: Tensor
    squares_G: Tensor
    """Sum of squared deviations from the mean."""
    low_G: Tensor
    high_G: Tensor

    def groups(self, indices: Tensor) -> Visits:
        """The statistics of some groups, on the device of `indices`."""
        return Visits(*(values_G.to(indices.device)[indices] for values_G in self))


_NEVER = (0.0, 0.0, 0.0, 0.0, math.inf, -math.inf)


def pooled(before: Visits, rewards_B: Tensor, group_ids_B: Tensor) -> Visits:
    """The statistics after one more batch.

    Source: Chan, Golub and LeVeque 1979, the update of means and squares for a union.
    """
    empty_G = torch.zeros_like(before.count_G)
    sizes_G = empty_G.index_add(0, group_ids_B, torch.ones_like(rewards_B))
    means_G = empty_G.index_add(0, group_ids_B, rewards_B) / sizes_G
    deviations_B = rewards_B - means_G[group_ids_B]
    squares_G = empty_G.index_add(0, group_ids_B, deviations_B.square())
    count_G, gap_G = before.count_G + sizes_G, means_G - before.mean_G
    between_G = gap_G.square() * before.count_G * sizes_G / count_G
    return Visits(
        before.number_G + 1,
        count_G,
        before.mean_G + gap_G * sizes_G / count_G,
        before.squares_G + squares_G + between_G,
        before.low_G.scatter_reduce(0, group_ids_B, rewards_B, "amin"),
        before.high_G.scatter_reduce(0, group_ids_B, rewards_B, "amax"),
    )


class PromptHistory:
    """Pooled rewards of the most recent prompts. Part of the checkpoint.

    A prompt that occurs twice in a batch counts as two visits; both groups use the statistics from
    before the batch.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[float, ...]] = {}
        """The fields of `Visits` by prompt id, most recent last."""

    def before(self, prompt_ids: Sequence[str], device: torch.device | str = "cpu") -> Visits:
        """The statistics of the prompts of some groups, on a device."""
        rows = [self._of.get(prompt_id, _NEVER) for prompt_id in prompt_ids]
        table = torch.tensor(rows, dtype=torch.float64, device=device)
        return Visits(*table.reshape(-1, len(_NEVER)).T)

    def add(
        self, prompt_ids: Sequence[str], rewards_B: Tensor, group_ids_B: Tensor, limit: int
    ) -> None:
        """Add a batch's rewards."""
        for group, prompt_id in enumerate(prompt_ids):
            own = rewards_B[group_ids_B == group].cpu()
            visits = pooled(self.before([prompt_id]), own, torch.zeros(len(own), dtype=torch.long))
            self._of.pop(prompt_id, None)
            self._of[prompt_id] = tuple(float(value) for value in visits)
        for prompt_id in list(self._of)[:-limit]:
            del self._of[prompt_id]

    def state(self) -> dict[str, Any]:
        """The history, as JSON."""
        return {prompt_id: list(row) for prompt_id, row in self._of.items()}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Inverse of `state`."""
        self._of = {prompt_id: tuple(row) for prompt_id, row in state.items()}
