"""Advantages against published values, and groups that carry no signal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.algorithms.advantages.base import (
    AdvantageInputs,
    of_kept,
    varied_groups,
)
from grpodoctor.trainer.algorithms.advantages.settings import AdvantageConfig
from grpodoctor.trainer.algorithms.names import names
from grpodoctor.trainer.algorithms.registry import advantage_of
from grpodoctor.trainer.algorithms.shaping.soft_overlong import soft_overlong

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors.json").read_text())
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
        ("leave_one_out", {"kind": "leave_one_out"}),
        ("batch_std_population", {"kind": "batch_std", "epsilon": 0.0}),
        ("batch_std_unbiased_1e-4", {"kind": "batch_std", "std": "unbiased", "epsilon": 1e-4}),
        ("scalerl", {"kind": "scalerl", "epsilon": 0.0}),
    ],
)
def test_advantages_match_the_published_vectors(name: str, settings: dict[str, Any]) -> None:
    expected_B = torch.tensor(VECTORS["advantages"][name], dtype=torch.float64)
    torch.testing.assert_close(advantages(GROUPS, **settings), expected_B, rtol=1e-6, atol=1e-9)


TWO = VECTORS["advantages"]["two_grpo"]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("paper_population_std", {"epsilon": 0.0}),
        ("torch_std_unbiased", {"std": "unbiased", "epsilon": 0.0}),
        ("torch_std_unbiased_eps1e-4", {"std": "unbiased", "epsilon": 1e-4}),
        ("rloo", {"kind": "leave_one_out"}),
        ("centered", {"kind": "centred"}),
    ],
)
def test_groups_of_two_have_the_published_advantages(name: str, settings: dict[str, Any]) -> None:
    assert advantages([TWO["rewards"]], **settings).tolist() == pytest.approx(TWO[name], rel=1e-6)


@pytest.mark.parametrize(
    ("rewards", "expected", "ties"),
    [
        *(("rewards", "advantage", ties) for ties in ("average", "position")),
        ("tie_example_rewards", "tie_example_stable_argsort", "position"),
        ("tie_example_rewards", "tie_average_rank", "average"),
    ],
)
def test_ranks_are_those_of_gopo(rewards: str, expected: str, ties: str) -> None:
    table = VECTORS["advantages"]["gopo"]
    ranked_B = advantages([table[rewards], [5.0, 9.0]], kind="gopo", ties=ties)
    assert ranked_B.tolist() == pytest.approx([*table[expected], -2.0, 2.0])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("final_population", {"epsilon": 0.0}),
        ("final_trl_style", {"std": "unbiased", "epsilon": 1e-4}),
    ],
)
def test_components_are_normalised_each_by_itself_as_in_gdpo(
    name: str, settings: dict[str, Any]
) -> None:
    table = VECTORS["advantages"]["gdpo"]
    values_BN = torch.tensor(table["rewards"], dtype=torch.float64)
    config = AdvantageConfig(
        kind="gdpo",
        component_weights=dict(zip("ab", table["weights"], strict=True)),
        **settings,
    )
    inputs = AdvantageInputs(
        values_BN.sum(dim=1),
        torch.arange(len(values_BN)) // table["group_size"],
        config,
        dict(zip("ab", values_BN.T, strict=True)),
    )
    assert advantage_of("gdpo")(inputs).tolist() == pytest.approx(table[name], rel=1e-6)
    stranger = replace(inputs, settings=AdvantageConfig(component_weights={"c": 1.0}))
    with pytest.raises(ConfigError, match="use one of a, b"):
        advantage_of("gdpo")(stranger)


def test_rejected_groups_have_no_advantage_and_others_their_reward() -> None:
    table = VECTORS["advantages"]["reinforce_rej"]
    result_B = advantages(table["groups"], kind="reinforce_rej")
    assert result_B.tolist() == [reward or 0.0 for reward in table["advantage_raw_reward"]]
    raw_B = advantages(table["groups"], kind="none")
    assert raw_B.tolist() == [reward for group in table["groups"] for reward in group]


# Advantages without a group baseline: `none` is the reward, `gae` uses the critic.
@pytest.mark.parametrize("kind", sorted({*names("advantages")} - {"none", "gae"}))
@given(
    reward=st.floats(-1e6, 1e6, allow_nan=False),
    size=st.integers(2, 16),
    epsilon=st.sampled_from([0.0, 1e-6]),
)
def test_equal_rewards_give_exactly_zero(
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
        assert soft_overlong(int(length), limit, buffer) == pytest.approx(expected)


def test_standardized_advantages_are_bounded_by_the_group_size() -> None:
    fixture = VECTORS["advantages"]["bounded"]
    found_B = advantages([fixture["rewards"]], kind="group", epsilon=0)
    wanted_B = torch.tensor(fixture["population_std_normalised"], dtype=torch.float64)
    torch.testing.assert_close(found_B, wanted_B, rtol=1e-6, atol=1e-9)
    assert found_B.abs().max().item() == pytest.approx(fixture["bound"], rel=1e-6)


@pytest.mark.parametrize("right", [1, 4, 7])
def test_history_changes_the_advantage_of_a_correct_answer(right: int) -> None:
    wanted = VECTORS["advantages"]["bounded"]["binary_p_of_G8"][f"{right}/8"]
    rewards = [[1.0] * right + [0.0] * (8 - right)]
    standardised_B = advantages(rewards, kind="group", epsilon=0)
    centred_B = advantages(rewards, kind="centred")
    assert standardised_B[0].item() == pytest.approx(wanted["A_plus_std"], rel=1e-6)
    assert standardised_B[-1].item() == pytest.approx(wanted["A_minus_std"], rel=1e-6)
    assert centred_B[0].item() == pytest.approx(wanted["A_plus_centered"], rel=1e-6)


def test_max_rl_divides_by_the_groups_mean() -> None:
    groups = [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0] * 4, [1.0] * 4]
    found = advantages(groups, kind="max_rl").view(4, 4)
    assert found.tolist() == [[3, -1, -1, -1], [1, 1, -1, -1], [0] * 4, [0] * 4]
    # A mean that is not above zero is no success rate.
    assert advantages([[-1.0, 0.0], [1.0, -1.0]], kind="max_rl").tolist() == [0] * 4


@given(st.lists(st.booleans(), min_size=2, max_size=12).filter(any), st.integers(0, 1000))
def test_max_rl_gives_the_papers_estimator(correct: list[bool], seed: int) -> None:
    """The mean score of the correct responses minus the mean score of all (arXiv 2602.02710)."""
    scores_B = torch.randn(
        len(correct), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    found = (advantages([[float(each) for each in correct]], kind="max_rl") * scores_B).mean()
    expected = scores_B[torch.tensor(correct)].mean() - scores_B.mean()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_reinforce_plus_plus_baseline_whitens_over_tokens() -> None:
    rewards = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    lengths = np.array([3, 1, 2, 5, 4, 2])
    centered = rewards - np.repeat([rewards[:3].mean(), rewards[3:].mean()], 3)
    tokens = np.repeat(centered, lengths)  # one entry per loss token
    expected = (centered - tokens.mean()) / tokens.std()
    config = AdvantageConfig(kind="reinforce_plus_plus_baseline")
    inputs = AdvantageInputs(
        torch.tensor(rewards),
        torch.tensor([0, 0, 0, 1, 1, 1]),
        config,
        lengths_B=torch.tensor(lengths),
    )
    found = advantage_of(config.kind)(inputs)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    kept_B = torch.tensor([True] * 3 + [False] * 3)
    part = of_kept(advantage_of(config.kind), inputs, kept_B)
    tokens = np.repeat(centered[:3], lengths[:3])
    np.testing.assert_allclose(
        part[:3].numpy(), (centered[:3] - tokens.mean()) / tokens.std(), rtol=1e-12
    )
    assert (part[3:] == 0).all()


def test_reinforce_plus_plus_baseline_of_equal_rewards_is_zero() -> None:
    found = advantages([[1.0, 1.0], [0.1, 0.1]], kind="reinforce_plus_plus_baseline")
    assert found.tolist() == [0, 0, 0, 0]
