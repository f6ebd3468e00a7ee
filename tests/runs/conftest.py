from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from grpodoctor.measure.batch import RolloutBatch

WRITER = Path(__file__).parent / "recording" / "writer.py"


@pytest.fixture
def writer_program() -> Path:
    """A program that records a run in a process of its own."""
    return WRITER


@pytest.fixture
def make_batch() -> Callable[..., RolloutBatch]:
    """A rollout batch of given size; the sampler is far off on one token of response `sick`."""

    def make(step: int, count: int = 8, width: int = 6, sick: int | None = None) -> RolloutBatch:
        random = np.random.default_rng(step)
        learner_BT = -random.random((count, width)).astype(np.float32)
        sampler_BT = learner_BT + np.float32(0.01)
        mask_BT = np.arange(width) <= np.arange(count)[:, None] % width
        if sick is not None:
            sampler_BT[sick, 0] -= 3
        return RolloutBatch(
            step=step,
            sequence_ids=[f"{step}-{row}" for row in range(count)],
            group_ids_B=np.arange(count) // 4,
            prompt_ids=[f"p{row // 4}" for row in range(count)],
            prompts=["1 + 1 ="] * count,
            texts=[f"the answer is {row}" for row in range(count)],
            references=["2"] * count,
            tokens_BT=random.integers(0, 50, (count, width)),
            mask_BT=mask_BT,
            rewards_B=random.random(count),
            components={"right": random.random(count), "format": random.random(count)},
            correct_B=random.random(count) > 0.5,
            truncated_B=mask_BT.all(axis=1),
            advantages_B=random.standard_normal(count),
            learner_logprobs_BT=learner_BT,
            sampler_logprobs_BT=sampler_BT,
            entropy_BT=np.full((count, width), 0.7, np.float32),
            staleness_B=np.zeros(count, np.int64),
        )

    return make
