"""Batches for the measures: one small with known answers, one random of a real batch's size."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.measure.batch import RolloutBatch, UpdateBatch

GARBAGE = 7.7e8


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "vectors.json").read_text())


@pytest.fixture
def core_batch(vectors):
    """One prompt, two responses of 3 and 2 tokens; garbage where the padding is."""
    core = vectors["core"]
    mask_BT = np.array(core["mask"], dtype=bool)

    def logprobs(key: str) -> np.ndarray:
        return np.where(mask_BT, np.log(core[key]), GARBAGE)

    return RolloutBatch(
        step=0,
        sequence_ids=["long", "short"],
        group_ids_B=np.array([4, 4]),
        prompt_ids=["p", "p"],
        prompts=["1+1=", "1+1="],
        texts=["it is 2", "3"],
        references=["2", "2"],
        tokens_BT=np.array([[5, 6, 7], [8, 9, 0]]),
        mask_BT=mask_BT,
        rewards_B=np.array(core["reward"]),
        truncated_B=np.array([False, False]),
        correct_B=np.array([True, False]),
        advantages_B=np.array(core["advantages"]),
        learner_logprobs_BT=logprobs("p_old"),
        sampler_logprobs_BT=logprobs("p_mu"),
        old_logprobs_BT=logprobs("p_old"),
        entropy_BT=np.where(mask_BT, [[0.5, 1.0, 0.1], [0.7, 1.5, 0.0]], GARBAGE),
    )


@pytest.fixture
def core_update(vectors):
    """An optimizer step on the same two responses, clipped at 0.2 on both sides."""
    core = vectors["core"]
    mask_BT = np.array(core["mask"], dtype=bool)

    def logprobs(key: str) -> np.ndarray:
        return np.where(mask_BT, np.log(core[key]), GARBAGE)

    return UpdateBatch(
        sequence_ids=["long", "short"],
        new_logprobs_BT=logprobs("p_new"),
        old_logprobs_BT=logprobs("p_old"),
        reference_logprobs_BT=logprobs("p_ref"),
        advantages_BT=np.repeat(np.array(core["advantages"])[:, None], 3, axis=1),
        loss_mask_BT=mask_BT,
        loss=-0.01,
        grad_norm=0.5,
        learning_rate=1e-3,
        clip_low=0.2,
        clip_high=0.2,
    )


def _rows_of(batch: RolloutBatch, rows: slice | np.ndarray) -> RolloutBatch:
    chosen: dict[str, Any] = {}
    for each in fields(batch):
        value = getattr(batch, each.name)
        if isinstance(value, list):
            chosen[each.name] = np.array(value, dtype=object)[rows].tolist()
        elif isinstance(value, np.ndarray):
            chosen[each.name] = value[rows]
        elif isinstance(value, dict):
            chosen[each.name] = {name: values_B[rows] for name, values_B in value.items()}
    return replace(batch, **chosen)


@pytest.fixture
def rows_of() -> Callable[[RolloutBatch, slice | np.ndarray], RolloutBatch]:
    """Some responses of a batch as a batch of their own."""
    return _rows_of


@pytest.fixture
def real_batch() -> RolloutBatch:
    """16 prompts with 8 responses of up to 28 tokens, everything recorded."""
    rng = np.random.default_rng(11)
    shape = (128, 28)
    mask_BT = np.arange(28) < rng.integers(3, 29, 128)[:, None]
    learner_BT = -rng.exponential(0.4, shape).astype(np.float32)
    correct_B = rng.random(128) < 0.5
    return RolloutBatch(
        step=3,
        sequence_ids=[f"3-{i}" for i in range(128)],
        group_ids_B=np.repeat(np.arange(16), 8),
        prompt_ids=[f"p{i // 8}" for i in range(128)],
        prompts=["7+5-2="] * 128,
        texts=["7+5=12. wait 12-2=10. #10"] * 128,
        references=["10"] * 128,
        tokens_BT=rng.integers(0, 30, shape),
        mask_BT=mask_BT,
        rewards_B=correct_B + 0.1 * rng.integers(0, 2, 128),
        truncated_B=rng.random(128) < 0.1,
        components={"answer": correct_B.astype(float), "format": rng.random(128)},
        correct_B=correct_B,
        advantages_B=rng.normal(size=128),
        learner_logprobs_BT=learner_BT,
        sampler_logprobs_BT=learner_BT + rng.normal(0, 0.05, shape).astype(np.float32),
        old_logprobs_BT=learner_BT,
        entropy_BT=rng.random(shape, dtype=np.float32),
        loss_mask_BT=mask_BT,
        staleness_B=rng.integers(0, 3, 128),
    )
