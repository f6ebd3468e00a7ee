"""Lists of rewards in a row of a log: what they say about the groups of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

REWARD_LISTS = ("rewards", "group_rewards", "rewards_per_group", "reward_groups", "grouped_rewards")
"""Keys of lists with one list of rewards for each group."""

_LEAST_REWARDS = 4
"""Rewards that make a batch; fewer may be components."""

_MOST_REWARDS = 100_000
"""Limit on the rewards of one row."""

_LARGEST = 1e100
"""Larger numbers, infinities and NaN are no rewards; their squares would overflow."""


def group_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Common names and numbers for the groups whose rewards a row lists; empty if it lists none.

    Args:
        values: the values of a row by key, of any type.
    """
    for key in REWARD_LISTS:
        groups = _groups_in(values.get(key))
        if groups:
            return _numbers(groups)
    return _of_batch(values)


def _of_batch(values: Mapping[str, Any]) -> dict[str, float]:
    """The mean and spread of the rewards of a batch whose groups are unknown.

    Next to another number of the reward, a list may hold its components.
    """
    rewards = values.get(REWARD_LISTS[0])
    if not isinstance(rewards, list) or not _LEAST_REWARDS <= len(rewards) <= _MOST_REWARDS:
        return {}
    if any("reward" in key or "score" in key for key in values if key != REWARD_LISTS[0]):
        return {}
    if not all(type(reward) in (int, float) and abs(reward) <= _LARGEST for reward in rewards):
        return {}
    return {"reward_mean": fmean(rewards), "batch_reward_std": pstdev(rewards)}


def _groups_in(value: object) -> list[list[float]]:
    """The rewards of each group; empty if the value is anything else."""
    if not isinstance(value, list) or not value or not all(isinstance(g, list) for g in value):
        return []
    groups: list[list[Any]] = value
    if min(map(len, groups)) < 2 or sum(map(len, groups)) > _MOST_REWARDS:
        return []
    rewards = [reward for group in groups for reward in group]
    numbers = all(type(reward) in (int, float) and abs(reward) <= _LARGEST for reward in rewards)
    return groups if numbers else []


def _numbers(groups: Sequence[Sequence[float]]) -> dict[str, float]:
    flat = [min(group) == max(group) for group in groups]
    zero = [not any(group) for group in groups]
    one = [all(reward == 1 for reward in group) for group in groups]
    return {
        "reward_mean": fmean(reward for group in groups for reward in group),
        "zero_variance_rate": fmean(flat),
        "all_incorrect_rate": fmean(zero),
        "all_correct_rate": fmean(one),
        "group_reward_std": fmean(map(pstdev, groups)),
    }
