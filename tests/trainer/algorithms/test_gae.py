"""Generalized advantage estimation against published values and its definition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, TokenInputs
from grpodoctor.trainer.algorithms.advantages.gae import gae, policy_lambda
from grpodoctor.trainer.algorithms.advantages.settings import AdvantageConfig
from grpodoctor.trainer.algorithms.registry import advantage_of

VECTOR: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors.json").read_text())[
    "advantages"
]["gae"]


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def advantages(
    rewards: Any,
    values: Any,
    mask: Any = None,
    *,
    loss_mask: Any = None,
    token_rewards: Any = None,
    **settings: Any,
) -> Tensor:
    mask_BT = torch.ones_like(tensor(values)).bool() if mask is None else torch.tensor(mask).bool()
    loss_mask_BT = mask_BT if loss_mask is None else torch.tensor(loss_mask).bool()
    more_BT = None if token_rewards is None else tensor(token_rewards)
    config = AdvantageConfig(kind="gae", **settings)
    tokens = TokenInputs(tensor(values), mask_BT, loss_mask_BT, more_BT)
    groups_B = torch.zeros(len(mask_BT), dtype=torch.long)
    return advantage_of("gae")(AdvantageInputs(tensor(rewards), groups_B, config, {}, tokens))


@pytest.mark.parametrize("lambda_", [1.0, 0.95, 0.0])
def test_advantages_match_the_published_vectors(lambda_: float) -> None:
    found_BT = advantages([1.0], [VECTOR["values"]], gae_lambda=lambda_)
    wanted_T = tensor(VECTOR[f"lambda{lambda_:g}"])
    torch.testing.assert_close(found_BT[0], wanted_T, rtol=1e-6, atol=1e-12)


def test_lambdas_by_length_are_the_published_ones() -> None:
    wanted = VECTOR["vapo_lambda_policy(l)=1-1/(0.05 l)"]
    lengths_B = torch.tensor([int(length) for length in wanted])
    found_B = policy_lambda(AdvantageConfig(kind="gae", gae_alpha=0.05), lengths_B)
    torch.testing.assert_close(found_B, tensor(list(wanted.values())), rtol=1e-6, atol=1e-9)


def test_a_length_adaptive_lambda_is_never_negative() -> None:
    config = AdvantageConfig(kind="gae", gae_alpha=0.05)
    assert policy_lambda(config, torch.tensor([0, 1, 19, 20])).tolist() == [0, 0, 0, 0]


def by_definition(
    rewards: list[float], values: list[float], lambda_: float, discount: float
) -> list[float]:
    """The sum of discounted deltas, as the definition states it."""
    ahead = [*values[1:], 0.0]
    deltas = [r + discount * v1 - v for r, v1, v in zip(rewards, ahead, values, strict=True)]
    decay = discount * lambda_
    return [
        sum(decay**distance * delta for distance, delta in enumerate(deltas[place:]))
        for place in range(len(deltas))
    ]


@pytest.mark.parametrize("settings", [{}, {"gae_alpha": 0.7}, {"gae_lambda": 0.3, "discount": 0.9}])
@pytest.mark.parametrize("garbage", [0.0, float("nan"), 1e30])
def test_responses_of_every_length_get_the_sum_of_deltas(
    settings: dict[str, float], garbage: float
) -> None:
    generator = torch.Generator().manual_seed(3)
    lengths = [5, 1, 7, 3]
    values_BT = torch.randn(4, 7, generator=generator, dtype=torch.float64)
    more_BT = torch.randn(4, 7, generator=generator, dtype=torch.float64)
    mask_BT = torch.arange(7) < torch.tensor(lengths)[:, None]
    rewards = [1.0, -0.5, 0.25, 0.0]
    found_BT = advantages(
        rewards,
        torch.where(mask_BT, values_BT, garbage).tolist(),
        mask_BT.tolist(),
        token_rewards=torch.where(mask_BT, more_BT, garbage).tolist(),
        **settings,
    )
    lambdas = policy_lambda(AdvantageConfig(kind="gae", **settings), torch.tensor(lengths))
    for row, length in enumerate(lengths):
        earned = more_BT[row, :length].tolist()
        earned[-1] += rewards[row]
        values, decay = values_BT[row, :length].tolist(), float(lambdas[row])
        wanted = by_definition(earned, values, decay, settings.get("discount", 1.0))
        assert found_BT[row, :length].tolist() == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert (found_BT[~mask_BT] == 0).all()


def test_lambda_one_gives_the_return_minus_the_value() -> None:
    found_BT = advantages([1.0], [[0.2, 0.9, -0.3, 0.4]], gae_lambda=1.0)
    torch.testing.assert_close(found_BT, tensor([[0.8, 0.1, 1.3, 0.6]]))


@pytest.mark.parametrize(("std", "correction"), [("population", 0), ("unbiased", 1)])
def test_whitening_uses_only_loss_tokens(std: str, correction: int) -> None:
    values = [[0.1, 0.4, 0.2], [0.3, 0.8, 0.0], [9.0, 9.0, 9.0]]
    mask = [[1, 1, 1], [1, 1, 0], [1, 1, 1]]
    loss_mask = [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    whitened_BT = advantages(
        [1.0, 0.0, 1.0], values, mask, loss_mask=loss_mask, whiten=True, epsilon=0.0, std=std
    )
    plain_BT = advantages([1.0, 0.0, 1.0], values, mask)
    chosen_BT = torch.tensor(loss_mask).bool()
    assert whitened_BT[chosen_BT].mean().item() == pytest.approx(0.0, abs=1e-12)
    assert whitened_BT[chosen_BT].std(correction=correction).item() == pytest.approx(1.0)
    assert (whitened_BT[~chosen_BT] == 0).all()
    order = plain_BT[chosen_BT].argsort()
    assert torch.equal(whitened_BT[chosen_BT].argsort(), order)


@pytest.mark.parametrize("count", [0, 1])
def test_whitening_without_spread_leaves_the_advantages(count: int) -> None:
    loss_mask = [[1] * count + [0] * (3 - count)]
    found_BT = advantages([1.0], [[0.0, 0.0, 0.0]], loss_mask=loss_mask, whiten=True)
    assert found_BT.isfinite().all()
    assert torch.equal(found_BT, advantages([1.0], [[0.0, 0.0, 0.0]]))


def test_equal_advantages_are_whitened_to_zero() -> None:
    found_BT = advantages([0.1], [[0.0] * 3], gae_lambda=1.0, whiten=True)
    assert found_BT.abs().max() < 1e-6


def test_gae_without_values_is_an_error() -> None:
    config = AdvantageConfig(kind="gae")
    with pytest.raises(ValueError, match="critic"):
        gae(AdvantageInputs(tensor([1.0]), torch.tensor([0]), config))
