"""Inputs of an advantage, and statistics of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.settings import AdvantageConfig
from grpodoctor.trainer.algorithms.prompt_history import Visits


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """Inputs of a token-level advantage. Values outside the masks are ignored."""

    values_BT: Tensor
    """The critic's value before each token."""
    mask_BT: Tensor
    """The generated tokens, from the first column on, bool."""
    loss_mask_BT: Tensor
    """Tokens in the loss, bool."""
    rewards_BT: Tensor | None = None
    """Rewards of single tokens, in addition to the response's reward; None without any."""

    def rows(self, kept_B: Tensor) -> TokenInputs:
        """The inputs of some responses."""
        return TokenInputs(
            self.values_BT[kept_B],
            self.mask_BT[kept_B],
            self.loss_mask_BT[kept_B],
            None if self.rewards_BT is None else self.rewards_BT[kept_B],
        )


@dataclass(frozen=True, slots=True)
class AdvantageInputs:
    """The rewards of one rollout batch."""

    rewards_B: Tensor
    """float64."""
    group_ids_B: Tensor
    """0 .. number of groups - 1; responses of one prompt share it."""
    settings: AdvantageConfig
    components: Mapping[str, Tensor] = field(default_factory=dict)
    """The parts of the reward by name, unweighted, shape (B,) each, float64."""
    tokens: TokenInputs | None = None
    """None without a critic."""
    visits: Visits | None = None
    """Earlier rewards of the groups' prompts; None if the advantage does not need them."""
    lengths_B: Tensor | None = None
    """Loss tokens of each response; None counts every response as one token."""

    def rows(self, kept_B: Tensor) -> AdvantageInputs:
        """The inputs of some responses, in whole groups."""
        groups, group_ids_B = torch.unique(self.group_ids_B[kept_B], return_inverse=True)
        return AdvantageInputs(
            self.rewards_B[kept_B],
            group_ids_B,
            self.settings,
            {name: part_B[kept_B] for name, part_B in self.components.items()},
            None if self.tokens is None else self.tokens.rows(kept_B),
            None if self.visits is None else self.visits.groups(groups),
            None if self.lengths_B is None else self.lengths_B[kept_B],
        )


Advantage = Callable[[AdvantageInputs], Tensor]
"""Returns advantages of shape (B,), or (B, T) if the tokens of a response differ."""


def of_kept(advantage: Advantage, inputs: AdvantageInputs, kept_B: Tensor) -> Tensor:
    """The advantages as if the kept responses were the whole batch; zero for the others."""
    if bool(kept_B.all()):
        return advantage(inputs)
    if not bool(kept_B.any()):
        return torch.zeros_like(inputs.rewards_B)
    part = advantage(inputs.rows(kept_B))
    whole = part.new_zeros(len(kept_B), *part.shape[1:])
    whole[kept_B] = part
    return whole


def group_mean(values_B: Tensor, group_ids_B: Tensor) -> Tensor:
    """The mean of each response's group, shape (B,)."""
    counts_G = torch.bincount(group_ids_B)
    sums_G = values_B.new_zeros(len(counts_G)).index_add(0, group_ids_B, values_B)
    return (sums_G / counts_G)[group_ids_B]


def centre(rewards_B: Tensor, group_ids_B: Tensor) -> Tensor:
    """Rewards minus the mean of their group; exactly zero if a group's rewards are all equal.

    The mean is rounded: the mean of three rewards of 0.1 is not 0.1. Dividing this rounding error
    by a standard deviation of the same size would give an advantage of about 1.
    """
    top_G, low_G = _extremes(rewards_B, group_ids_B)
    flat_B = (top_G == low_G)[group_ids_B]
    return (rewards_B - group_mean(rewards_B, group_ids_B)).masked_fill(flat_B, 0.0)


def standardize(rewards_B: Tensor, group_ids_B: Tensor, settings: AdvantageConfig) -> Tensor:
    """(reward - group mean) / (group standard deviation + epsilon), shape (B,)."""
    deviations_B = centre(rewards_B, group_ids_B)
    variance_B = group_mean(deviations_B.square(), group_ids_B)
    if settings.std == "unbiased":
        sizes_B = group_ids_B.bincount()[group_ids_B]
        variance_B = variance_B * sizes_B / (sizes_B - 1)
    return divide(deviations_B, variance_B.sqrt(), settings)


def batch_deviation(values_B: Tensor, settings: AdvantageConfig) -> Tensor:
    """The standard deviation over the batch, a scalar."""
    return values_B.std(correction=1 if settings.std == "unbiased" else 0)


def divide(deviations_B: Tensor, deviation: Tensor, settings: AdvantageConfig) -> Tensor:
    """Deviations over (standard deviation + epsilon).

    Equal rewards give 0, even if epsilon is 0.
    """
    return (deviations_B / (deviation + settings.epsilon)).masked_fill(deviations_B == 0, 0)


def varied_groups(rewards_B: Tensor, group_ids_B: Tensor) -> Tensor:
    """True for groups with variance in reward, shape (groups,)."""
    top_G, low_G = _extremes(rewards_B, group_ids_B)
    return top_G != low_G


def _extremes(values_B: Tensor, group_ids_B: Tensor) -> tuple[Tensor, Tensor]:
    groups = int(group_ids_B.max()) + 1
    empty_G = values_B.new_empty(groups)
    top_G = empty_G.scatter_reduce(0, group_ids_B, values_B, "amax", include_self=False)
    low_G = empty_G.scatter_reduce(0, group_ids_B, values_B, "amin", include_self=False)
    return top_G, low_G
