"""Advantages against published figures, and the corners in which a group teaches nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grpodoctor.trainer.advantages.base import AdvantageInputs, varied_groups
from grpodoctor.trainer.config import AdvantageConfig
from grpodoctor.trainer.registry import advantage_of, names
from grpodoctor.trainer.rollout import soft_punishment

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_name("vectors.json").read_text())
GROUPS = VECTORS["advantages"]["groups"]


def advantages(groups: list[list[float]], **settings: Any) -> Tensor:
    config = AdvantageConfig(**settings)
    rewards_B = torch.tensor([reward for group in groups for reward in group], dtype=torch.float64)
    ids_B = torch.tensor([index for index, group in enumerate(groups) for _ in group])
    return advantage_of(config.kind)(AdvantageInputs(rewards_B, ids_B, config))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("population", {"epsilon": 0.0}),
        ("unbiased_1e-6", {"std": "unbiased"}),
        ("unbiased_1e-4", {"std": "unbiased", "epsilon": 1e-4}),
        ("centred", {"kind": "centred"}),
    ],
)
def test_advantages_are_the_published_ones(name: str, settings: dict[str, Any]) -> None:
    expected_B = torch.tensor(VECTORS["advantages"][name], dtype=torch.float64)
    torch.testing.assert_close(advantages(GROUPS, **settings), expected_B, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", names("advantages"))
@given(
    reward=st.floats(-1e6, 1e6, allow_nan=False),
    size=st.integers(2, 16),
    epsilon=st.sampled_from([0.0, 1e-6]),
)
def test_equal_rewards_give_exactly_nothing(
    kind: str, reward: float, size: int, epsilon: float
) -> None:
    assert (advantages([[reward] * size], kind=kind, epsilon=epsilon) == 0).all()


@given(st.lists(st.lists(st.floats(-10, 10), min_size=2, max_size=6), min_size=1, max_size=4))
def test_groups_of_any_size_are_centred_and_bounded(groups: list[list[float]]) -> None:
    result_B, start = advantages(groups), 0
    for group in groups:
        part = result_B[start : start + len(group)]
        assert abs(part.sum().item()) < 1e-6
        assert part.abs().max() <= (len(group) - 1) ** 0.5 + 1e-6
        start += len(group)


def test_dynamic_sampling_keeps_the_groups_with_variance() -> None:
    rewards_B = torch.tensor([reward for group in GROUPS for reward in group])
    ids_B = torch.arange(3).repeat_interleave(4)
    assert (
        varied_groups(rewards_B, ids_B).tolist()
        == (VECTORS["advantages"]["dynamic_sampling_keep_groups"])
    )


@pytest.mark.parametrize(
    ("table", "limit", "buffer"),
    [("soft_overlong", 10, 4), ("soft_overlong_20480", 20480, 4096)],
)
def test_soft_overlong_punishment_is_dapos(table: str, limit: int, buffer: int) -> None:
    for length, expected in VECTORS[table].items():
        assert soft_punishment(int(length), limit, buffer) == pytest.approx(expected)
