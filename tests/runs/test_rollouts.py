"""Rollouts on disk."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grpodoctor.errors import RunError
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.mismatch import mismatch_readings
from grpodoctor.runs.rollouts import (
    Depth,
    prepare_rollouts,
    read_rollouts,
    rollout_table,
    rollouts_file,
    rollouts_schema,
    write_rollouts,
)
from grpodoctor.vocabulary.values import Max

Batches = Callable[..., RolloutBatch]
LISTS = ("token_ids", "learner_logprobs", "sampler_logprobs", "entropies")


def kept(batch: RolloutBatch, depth: Depth, worst: int = 3) -> list[int]:
    """The rows that keep their per-token columns."""
    table = rollout_table(batch, depth, worst)
    rows = [set(np.flatnonzero(table[name].is_valid().to_numpy())) for name in LISTS]
    assert all(each == rows[0] for each in rows)
    return sorted(rows[0])


def test_a_row_equals_its_response_in_the_batch(tmp_path: Path, make_batch: Batches) -> None:
    batch = make_batch(7)
    prepare_rollouts(tmp_path)
    write_rollouts(tmp_path, batch, "full", rank=2)
    table = read_rollouts(tmp_path, 7)
    assert table.schema == rollouts_schema()
    row = table.slice(3, 1).to_pylist()[0]
    assert (row["step"], row["rank"], row["sequence_id"], row["group_id"]) == (7, 2, "7-3", "0")
    assert (row["prompt"], row["text"], row["reference"]) == ("1 + 1 =", "the answer is 3", "2")
    assert row["length"] == 4
    assert row["reward"] == batch.rewards_B[3]
    assert dict(row["components"]) == {n: values[3] for n, values in batch.components.items()}
    assert row["correct"] == batch.correct_B[3]
    assert row["advantage"] == batch.advantages_B[3]
    assert row["entropy_mean"] == pytest.approx(0.7)
    assert row["staleness"] == 0
    assert row["token_ids"] == batch.tokens_BT[3, :4].tolist()
    assert row["learner_logprobs"] == batch.learner_logprobs_BT[3, :4].tolist()
    assert row["logprob_diff_mean"] == pytest.approx(0.01, rel=1e-4)


def test_depth_decides_whose_tokens_are_kept(make_batch: Batches) -> None:
    batch = make_batch(0, sick=5)
    assert kept(batch, "summary") == []
    assert kept(batch, "full") == list(range(8))
    assert kept(batch, "worst", worst=1) == [5]
    assert len(kept(batch, "worst", worst=3)) == 3
    assert kept(batch, "worst", worst=99) == list(range(8))


def test_a_log_probability_that_is_not_finite_is_the_worst(make_batch: Batches) -> None:
    batch = make_batch(0, sick=5)
    broken = batch.sampler_logprobs_BT.copy()
    broken[2, 0], broken[4, -1] = -np.inf, np.nan  # the second one is padding
    assert kept(replace(batch, sampler_logprobs_BT=broken), "worst", worst=2) == [2, 5]


def test_without_a_sampler_the_longest_are_the_worst(make_batch: Batches) -> None:
    batch = replace(make_batch(0), sampler_logprobs_BT=None)
    table = rollout_table(batch, "worst", 2)
    assert table["sampler_logprobs"].null_count == 8
    longest = np.argsort(-batch.lengths_B, kind="stable")[:2]
    assert np.flatnonzero(table["token_ids"].is_valid().to_numpy()).tolist() == sorted(longest)


def test_rows_agree_with_the_readings_of_the_batch(make_batch: Batches) -> None:
    batch = make_batch(3, sick=6)
    readings, table = mismatch_readings(batch), rollout_table(batch)
    for name in ("prob_diff_mean", "prob_diff_max", "logprob_diff_mean", "logprob_diff_max"):
        worst = readings[f"mismatch/{name}/worst_sequence"]
        assert isinstance(worst, Max)
        column = table[name].to_numpy()
        assert column.max() == pytest.approx(worst.value, rel=1e-9)
        assert table["sequence_id"][int(column.argmax())].as_py() == worst.where
        assert column.mean() == pytest.approx(readings[f"mismatch/{name}"].value, rel=1e-9)


def test_unmeasured_columns_are_null(make_batch: Batches) -> None:
    batch = replace(
        make_batch(0),
        correct_B=None,
        advantages_B=None,
        staleness_B=None,
        entropy_BT=None,
        learner_logprobs_BT=None,
        components={},
    )
    table = rollout_table(batch, "full")
    empty = {name for name in table.schema.names if table[name].null_count == 8}
    assert empty == {
        *("correct", "advantage", "staleness", "entropy_mean", "entropies", "learner_logprobs"),
        *("prob_diff_mean", "prob_diff_max", "logprob_diff_mean", "logprob_diff_max"),
        *("sequence_token_ids", "sequence_sampled"),
    }
    assert table["components"].to_pylist() == [[]] * 8


def test_invalid_unicode_is_written(tmp_path: Path, make_batch: Batches) -> None:
    batch = replace(make_batch(0, count=1), texts=["\ud800 \x1b[31m <script>"])
    prepare_rollouts(tmp_path)
    write_rollouts(tmp_path, batch)
    assert read_rollouts(tmp_path, 0)["text"].to_pylist() == ["? \x1b[31m <script>"]


def test_no_rollouts_and_damaged_rollouts_are_named(tmp_path: Path, make_batch: Batches) -> None:
    with pytest.raises(RunError, match="no rollouts for step 5"):
        read_rollouts(tmp_path, 5)
    prepare_rollouts(tmp_path)
    path = write_rollouts(tmp_path, make_batch(5))
    assert path == rollouts_file(tmp_path, 5, 0)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RunError, match="a rollouts file cannot be read"):
        read_rollouts(tmp_path, 5)
