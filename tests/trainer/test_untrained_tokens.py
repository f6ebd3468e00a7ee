from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from grpodoctor.trainer.recording import _untrained_tokens
from grpodoctor.vocabulary.values import NotApplicable, Rate


def untrained(loss_mask: list[list[int]]) -> Any:
    """The share for two responses of three and two generated tokens."""
    generated_BT = torch.tensor([[1, 1, 1], [1, 1, 0]], dtype=torch.bool)
    samples = SimpleNamespace(mask_BT=generated_BT)
    rollouts: Any = SimpleNamespace(samples=samples)
    batch: Any = SimpleNamespace(loss_mask_BT=torch.tensor(loss_mask).bool())
    return _untrained_tokens(rollouts, batch)


def test_generated_tokens_outside_the_mask_are_counted() -> None:
    assert untrained([[1, 1, 1], [1, 1, 0]]) == Rate(0, 5)
    assert untrained([[1, 1, 0], [1, 0, 0]]) == Rate(2, 5)


def test_a_response_that_is_left_out_as_a_whole_does_not_count() -> None:
    assert untrained([[1, 1, 0], [0, 0, 0]]) == Rate(1, 3)
    assert isinstance(untrained([[0, 0, 0], [0, 0, 0]]), NotApplicable)
