from __future__ import annotations

import os
import random
from concurrent.futures import Future
from pathlib import Path

import pytest

from grpodoctor.frameworks.rollout_formats import jsonlines
from grpodoctor.frameworks.rollout_formats.registry import dumps_among
from grpodoctor.measure.subsample import COMPRESSED_RESPONSES, SEARCHED_RESPONSES
from grpodoctor.runs.rollout_dumps import runners, text_subsample
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.runs.rollout_dumps.runners import Runner
from grpodoctor.runs.rollout_dumps.shards import Shard, plan_shards
from grpodoctor.support.files.regular_files import files_below
from tests.runs.rollout_dumps.samples import WRITERS, lines, text
from tests.samples import sampled

TINY = 7
"""Bytes of a shard that cuts every row many times, and some at their ends."""


def steps_of(root: Path, size: int, runner: Runner = runners.in_process) -> dict[int, object]:
    reader = DumpReader(dumps_among(files_below(root)), runner=runner, shard_bytes=size)
    steps = dict(reader.steps())
    assert not reader.failed
    return {**steps, -1: reader.pass_rates}


def several_steps_in_a_file(root: Path) -> None:
    """Groups lie apart in the file, as workers finish."""
    source = random.Random(0)
    rows = [
        {
            "step": step,
            "sample_idx": copy * 10 + prompt,
            "prompt_idx": prompt,
            "response_tokens": [source.randrange(50) for _ in range(source.randint(1, 60))],
            "reward": source.choice([0.0, 0.1, 1 / 3, 1.0]),
            "advantage": source.gauss(0, 1),
            "finish_reason": "stop",
        }
        for step in range(4)
        for copy in range(8)
        for prompt in range(10)
    ]
    source.shuffle(rows)
    lines(root / "run_rollouts_000000.jsonl", rows)


@pytest.mark.parametrize("name", sampled(WRITERS, 3))
def test_readings_do_not_depend_on_the_shards(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    whole = steps_of(tmp_path, 1 << 30)
    assert steps_of(tmp_path, TINY) == whole
    assert steps_of(tmp_path, 977) == whole


@pytest.mark.parametrize("size", [TINY, 333, 4096])
def test_groups_and_steps_may_be_spread_over_shards(tmp_path: Path, size: int) -> None:
    several_steps_in_a_file(tmp_path)
    assert steps_of(tmp_path, size) == steps_of(tmp_path, 1 << 30)


def test_readings_do_not_depend_on_batches_within_a_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several_steps_in_a_file(tmp_path)
    whole = steps_of(tmp_path, 1 << 30)
    monkeypatch.setattr(jsonlines, "BATCH_BYTES", 100)
    monkeypatch.setattr(jsonlines, "BLOCK_BYTES", 30)
    assert steps_of(tmp_path, 1 << 30) == whole


def test_a_pool_of_processes_gives_the_same(tmp_path: Path) -> None:
    several_steps_in_a_file(tmp_path)
    for name in ("verl rollouts", "NeMo RL train data", "grpodoctor rollouts"):
        WRITERS[name](tmp_path / name)
    assert steps_of(tmp_path, 5000, runners.in_process_pool(2)) == steps_of(tmp_path, 1 << 30)


def test_small_files_share_a_shard_and_large_ones_are_cut(tmp_path: Path) -> None:
    WRITERS["AReaL rollouts"](tmp_path)
    files = dumps_among(files_below(tmp_path))
    assert len(plan_shards(files, 1 << 20).shards) == 1
    assert len(plan_shards(files, 100).shards) > len(files)
    steps = [shard.pieces[0].step for shard in plan_shards(files, 100).shards]
    assert steps == sorted(steps, key=lambda step: step or 0)


def test_a_failed_shard_is_retried_by_file_and_the_others_are_kept(tmp_path: Path) -> None:
    WRITERS["TRL completions"](tmp_path)
    files = dumps_among(files_below(tmp_path))
    middle = tmp_path / "completions/completions_00002.parquet"
    reader = DumpReader(files, runner=runners.in_process)
    shards = plan_shards(files).shards
    middle.unlink()
    (outcomes,) = runners.in_process(shards)
    assert [each.summary is None for each in outcomes] == [False, True, False]
    assert list(dict(reader.steps())) == [1, 3]
    assert len(reader.failed) == 1
    assert "completions_00002.parquet" in reader.failed[0]


def test_a_shard_that_fails_once_is_read_on_retry(tmp_path: Path) -> None:
    WRITERS["verl rollouts"](tmp_path)
    shards = plan_shards(dumps_among(files_below(tmp_path)), 1).shards[:3]
    tries: dict[str, int] = {}

    def flaky(ticket: Shard, shard: Shard) -> runners.ShardResult:
        tries[shard.name] = tries.get(shard.name, 0) + 1
        if tries[shard.name] == 1:
            return runners.ShardResult(shard, None, "a passing failure")
        return runners.try_shard(shard)

    found = list(runners._in_order(shards, 2, lambda shard: shard, flaky))
    assert all(each.summary is not None for outcomes in found for each in outcomes)
    assert set(tries.values()) == {2}


class Deadly(runners._Pool):
    """A pool in which the first shard of step 2 kills the process that reads it."""

    def submit(self, shard: Shard) -> Future[runners.ShardResult] | None:
        if is_deadly(shard):
            return self._pool.submit(os._exit, 1)
        return super().submit(shard)


def is_deadly(shard: Shard) -> bool:
    return shard.pieces[0].step == 2 and shard.pieces[0].start == 0


def test_a_dead_process_loses_only_its_shard(tmp_path: Path) -> None:
    WRITERS["verl rollouts"](tmp_path)
    shards = plan_shards(dumps_among(files_below(tmp_path)), 1000).shards
    pool = Deadly(2)
    try:
        found = list(runners._in_order(shards, 4, pool.submit, pool.result))
    finally:
        pool.close()
    assert len(found) == len(shards)
    assert all(each.summary is not None for outcomes in found for each in outcomes)


def long_step(root: Path, order: int) -> None:
    """One step of 400 responses, shuffled by `order`; 32 of them are compressed."""
    source = random.Random(1)
    rows = [
        {"input": f"p{row // 8}", "output": text(source), "gts": "", "score": 1.0, "step": 1}
        for row in range(400)
    ]
    random.Random(order).shuffle(rows)
    lines(root / "1.jsonl", rows)


def test_the_subsample_depends_on_the_responses_alone(tmp_path: Path) -> None:
    for order in (1, 2):
        (tmp_path / str(order)).mkdir()
        long_step(tmp_path / str(order), order)
    whole = steps_of(tmp_path / "1", 1 << 30)
    assert whole[1]["text/compression_ratio"].count == COMPRESSED_RESPONSES  # type: ignore[index]
    assert whole[1]["text/reflection_rate"].count == SEARCHED_RESPONSES  # type: ignore[index]
    assert steps_of(tmp_path / "1", 5000) == whole
    assert steps_of(tmp_path / "2", 1 << 30) == whole


def test_responses_dropped_early_do_not_bias_the_subsample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_step(tmp_path, 1)
    whole = steps_of(tmp_path, 1 << 30)
    monkeypatch.setattr(text_subsample, "MAX_HELD", 1000)
    monkeypatch.setattr(jsonlines, "BATCH_BYTES", 3000)
    monkeypatch.setattr(jsonlines, "BLOCK_BYTES", 2000)
    assert steps_of(tmp_path, 1 << 30) == whole
