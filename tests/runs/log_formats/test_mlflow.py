"""MLflow's file store: one text file per key."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.mlflow import MlflowMetrics
from grpodoctor.runs.log_formats.registry import log_format_of
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.support.files import growing_files
from grpodoctor.vocabulary.values import scalar
from tests.runs.log_formats.binary_logs import rows_of

VALUES = {"reward": 0.25, "reward_std": 0.5, "completions/mean_length": 200.0, "kl": 0.001}


def store(directory: Path, steps: range) -> Path:
    """A run folder as MLflow writes it."""
    run = directory / "mlruns/0/a1"
    (run / "params").mkdir(parents=True, exist_ok=True)
    (run / "meta.yaml").write_text("run_id: a1\n")
    (run / "params/num_generations").write_text("8")
    (run / "params/bf16").write_text("True")
    for key, value in VALUES.items():
        path = run / "metrics" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.writelines(f"{1700000000000 + step} {value} {step}\n" for step in steps)
    return run


def reader_of(run: Path) -> MlflowMetrics:
    return MlflowMetrics(run / "metrics/completions/mean_length", RowKeys())


def test_the_store_is_a_run_with_its_parameters(tmp_path: Path) -> None:
    store(tmp_path, range(1, 31))
    run = open_run(tmp_path)
    steps = list(run.steps)
    assert run.manifest.framework == "trl"
    assert run.manifest.knobs["group_size"] == 8
    assert [each.step for each in steps] == list(range(1, 31))
    assert scalar(steps[-1].values["length/mean"]) == 200.0
    assert steps[0].time == pytest.approx(1.7e9)


def test_one_reader_reads_all_files_of_a_run(tmp_path: Path) -> None:
    run = store(tmp_path, range(5))
    formats = {
        path.name: getattr(log_format_of(path), "name", None)
        for path in (run / "metrics").rglob("*") if path.is_file()
    }  # fmt: skip
    assert list(formats.values()).count("mlflow") == 1


def test_lines_are_read_once_while_the_files_grow(tmp_path: Path) -> None:
    run = store(tmp_path, range(5))
    reader = reader_of(run)
    assert [row.step for row in rows_of(reader)[0]] == list(range(5))
    assert rows_of(reader) == ([], [])
    store(tmp_path, range(5, 8))
    assert [row.step for row in rows_of(reader)[0]] == [5, 6, 7]


def test_a_step_is_complete_although_the_files_are_read_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store(tmp_path, range(2000))
    monkeypatch.setattr(growing_files, "BLOCK", 1000)
    rows, damage = rows_of(reader_of(run))
    assert not damage
    assert [row.step for row in rows] == list(range(2000))
    assert all(len(row.values) == len(VALUES) for row in rows)


def test_other_lines_are_damage(tmp_path: Path) -> None:
    run = store(tmp_path, range(3))
    path = run / "metrics/reward"
    path.write_text(path.read_text() + "not a metric\n1700000000009 nan 4\n")
    rows, damage = rows_of(reader_of(run))
    assert len(damage) == 1
    assert [row.step for row in rows] == [0, 1, 2, 4]
