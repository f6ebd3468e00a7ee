"""Denominators against published values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.aggregation import AGGREGATIONS, StepTokens, token_weights
from tests.trainer.algorithms.loss_cases import (
    BUDGET,
    GROUP_IDS_B,
    VECTORS,
    tensor,
)


def _ragged(fixture: dict[str, Any]) -> tuple[Tensor, StepTokens]:
    width = max(fixture["lengths"])
    garbage = 1e30
    loss_BT = tensor([row + [garbage] * (width - len(row)) for row in fixture["per_token_loss"]])
    mask_BT = torch.arange(width) < torch.tensor(fixture["lengths"])[:, None]
    return loss_BT, StepTokens(mask_BT, torch.tensor(fixture["group"]), fixture["L_max"])


@pytest.mark.parametrize(
    ("number", "kind"),
    [(number, kind) for number in (0, 1) for kind in VECTORS["aggregation"][number]["expected"]],
)
def test_denominators_match_the_published_vectors(number: int, kind: str) -> None:
    fixture = VECTORS["aggregation"][number]
    loss_BT, tokens = _ragged(fixture)
    aggregated = (token_weights(kind, tokens) * loss_BT).sum().item()
    assert aggregated == pytest.approx(fixture["expected"][kind], rel=1e-6)


def test_the_constant_denominator_does_not_depend_on_the_padding() -> None:
    _, tokens = _ragged(VECTORS["aggregation"][1])
    wider = StepTokens(
        torch.nn.functional.pad(tokens.mask_BT, (0, 9)), tokens.group_ids_B, tokens.length_limit
    )
    weights, wide = token_weights("constant", tokens), token_weights("constant", wider)
    assert weights.sum() == wide.sum()


@pytest.mark.parametrize("kind", AGGREGATIONS)
def test_a_step_without_loss_tokens_is_zero_and_not_nan(kind: str) -> None:
    nothing = StepTokens(torch.zeros(2, 3, dtype=torch.bool), GROUP_IDS_B, BUDGET)
    assert token_weights(kind, nothing).abs().sum() == 0


@pytest.mark.parametrize("kind", AGGREGATIONS)
def test_prompt_ids_need_not_be_consecutive(kind: str) -> None:
    _, tokens = _ragged(VECTORS["aggregation"][0])
    renamed = StepTokens(tokens.mask_BT, tokens.group_ids_B * 7 + 3, tokens.length_limit)
    assert torch.equal(token_weights(kind, tokens), token_weights(kind, renamed))
