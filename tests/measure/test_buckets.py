from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.buckets import (
    BUCKET_METRICS,
    BUCKETED_RESPONSES,
    bucket_means,
    bucket_readings,
)
from grpodoctor.measure.mismatch import mismatch_readings
from grpodoctor.measure.ragged import Ragged, gap_figures
from grpodoctor.measure.response_table import ResponseTable, join_tables, table_readings
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Reading, scalar


def columns(count: int, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Log-probabilities of both sides of responses of all lengths, some of them not finite."""
    random = np.random.default_rng(seed)
    learner, sampler = [], []
    for row in range(count):
        length = int(random.choice([1, 10, 63, 64, 65, 300, 1500]))
        theirs = -random.exponential(0.7, length)
        ours = theirs + random.normal(0, 0.05 * (1 + row % 3), length)
        if row % 5 == 0:
            ours[0] = -np.inf
        learner.append(np.minimum(ours, 0))
        sampler.append(theirs)
    return learner, sampler


def table(learner: list[np.ndarray], sampler: list[np.ndarray]) -> ResponseTable:
    lengths = np.array([each.size for each in learner])
    left, right = (Ragged.of_lengths(np.concatenate(each), lengths) for each in (learner, sampler))
    rows: dict[str, np.ndarray] = {
        "step": np.zeros(lengths.size, np.int64),
        "group": np.zeros(lengths.size, np.uint64),
        "text": np.zeros(lengths.size, np.uint64),
        **gap_figures(left, right),
    }
    return ResponseTable(rows, {}, bucket_means(left, right, rows))


def live(learner: list[np.ndarray], sampler: list[np.ndarray]) -> dict[str, Reading]:
    width = max(each.size for each in learner)
    padded = [np.array([np.pad(each, (0, width - each.size)) for each in side])
              for side in (learner, sampler)]  # fmt: skip
    count = len(learner)
    return mismatch_readings(
        RolloutBatch(
            step=0, sequence_ids=[str(row) for row in range(count)],
            group_ids_B=np.zeros(count, np.int64), prompt_ids=["p"] * count, prompts=[""] * count,
            texts=[""] * count, references=[""] * count,
            tokens_BT=np.zeros((count, width), np.int64),
            mask_BT=np.arange(width) < np.array([each.size for each in learner])[:, None],
            rewards_B=np.zeros(count), truncated_B=np.zeros(count, bool),
            learner_logprobs_BT=padded[0], sampler_logprobs_BT=padded[1],
        )
    )  # fmt: skip


def test_the_buckets_of_few_responses_are_those_of_a_live_run() -> None:
    both = columns(BUCKETED_RESPONSES)
    found, expected = table_readings(table(*both)), live(*both)
    compared = [name for name in BUCKET_METRICS if name in expected]
    assert len(compared) > 16
    assert {name for name in BUCKET_METRICS if name in found} == set(compared)
    for name in compared:
        assert scalar(found[name]) == pytest.approx(scalar(expected[name]), rel=1e-9), name
        assert metric_of(name) is not None


@pytest.mark.parametrize("cuts", [[200], [1, 2, 50], [17, 18, 19, 20, 150]])
def test_the_subsample_does_not_depend_on_the_shards(cuts: list[int]) -> None:
    learner, sampler = columns(300)
    whole = table(learner, sampler)
    borders = [0, *cuts, 300]
    parts = [table(learner[a:b], sampler[a:b])
             for a, b in pairwise(borders)]  # fmt: skip
    assert repr(join_tables(parts).bucketed) == repr(whole.bucketed)
    assert repr(join_tables(parts[::-1]).bucketed) == repr(whole.bucketed)
    assert len(whole.bucketed[0]) == BUCKETED_RESPONSES


def test_a_subsample_is_close_to_the_whole() -> None:
    learner, sampler = columns(600, seed=1)
    found, expected = table_readings(table(learner, sampler)), live(learner, sampler)
    name = "mismatch/logprob_diff_mean/position/0-15"
    spread = 0.04  # between responses, of which a third is three times as far off as another
    assert scalar(found[name]) == pytest.approx(scalar(expected[name]), abs=3 * spread / 4)


def test_no_finite_tokens_give_no_readings() -> None:
    nothing = [np.full(5, -np.inf)] * 3
    assert table(nothing, nothing).bucketed == {}
    assert bucket_readings([]) == {}
