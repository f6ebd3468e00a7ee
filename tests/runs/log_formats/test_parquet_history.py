"""Histories in Parquet, as W&B's history artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpodoctor.errors import RunError
from grpodoctor.runs.log_formats.registry import log_format_of
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar

SCHEMA = {
    "_step": pa.int64(), "_timestamp": pa.float64(), "train/global_step": pa.int64(),
    "train/reward": pa.float64(), "train/reward_std": pa.float64(), "train/kl": pa.float64(),
    "train/completions/mean_length": pa.float64(), "eval/reward": pa.float64(),
    "note": pa.string(), "samples": pa.list_(pa.int64()),
}  # fmt: skip


def rows(steps: range) -> list[dict[str, Any]]:
    """A row per step, and a row of an evaluation at every tenth step."""
    made: list[dict[str, Any]] = []
    for step in steps:
        made.append({
            "_step": len(made), "_timestamp": 1.7e9 + step, "train/global_step": step,
            "train/reward": step / 64, "train/reward_std": 0.25, "train/kl": 0.001,
            "train/completions/mean_length": 200.0, "note": "text", "samples": [1, 2],
        })  # fmt: skip
        if step % 10 == 0:
            made.append({"_step": len(made), "train/global_step": step, "eval/reward": 0.5})
    return made


def write(path: Path, steps: range) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows(steps), schema=pa.schema(SCHEMA)), path)
    return path


def test_the_parts_of_a_history_are_one_run(tmp_path: Path) -> None:
    write(tmp_path / "run-abc-history:v0/0000.parquet", range(1, 31))
    write(tmp_path / "run-abc-history:v0/0001.parquet", range(31, 41))
    run = open_run(tmp_path)
    steps = {each.step: each for each in run.steps}
    assert run.manifest.framework == "trl"
    assert list(steps) == list(range(1, 41))
    assert scalar(steps[40].values["reward/mean"]) == 40 / 64
    assert scalar(steps[40].values["reward/heldout"]) == 0.5
    assert "reward/heldout" not in steps[39].values


def test_a_table_without_steps_or_numbers_is_not_a_history(tmp_path: Path) -> None:
    data = tmp_path / "train-00000.parquet"
    pq.write_table(pa.table({"prompt": ["a"], "answer": ["b"], "index": [1]}), data)
    assert log_format_of(data) is None
    broken = tmp_path / "0000.parquet"
    broken.write_bytes(b"PAR1" + b"x" * 100)
    assert log_format_of(broken) is None


def test_a_damaged_history_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "0000.parquet", range(1, 31))
    data = bytearray(path.read_bytes())
    data[20:200] = bytes(180)
    path.write_bytes(data)
    with pytest.raises(RunError, match="no readable log"):
        list(open_run(path).steps)
