"""Prompts of sampled rows."""

from __future__ import annotations

import torch

from grpodoctor.trainer.samples import Samples


def test_neighbours_with_one_prompt_share_its_ids() -> None:
    """Padding on the left tells apart prompts with the same tokens below it."""
    samples = Samples(
        tokens_BL=torch.tensor([[5, 6, 9], [5, 6, 9], [5, 6, 9], [7, 6, 9]]),
        attention_BL=torch.tensor([[True] * 3, [True] * 3, [False, True, True], [True] * 3]),
        prompt_width=2,
        logprobs_BT=torch.zeros(4, 1),
        truncated_B=torch.zeros(4, dtype=torch.bool),
        pad_id=0,
    )
    prompts = samples.prompt_ids()
    assert [ids.tolist() for ids in prompts] == [[5, 6], [5, 6], [6], [7, 6]]
    assert prompts[0] is prompts[1]
    assert samples.rows([]).prompt_ids() == []
