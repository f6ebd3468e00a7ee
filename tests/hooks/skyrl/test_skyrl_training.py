"""SkyRL's own trainer with grpodoctor attached, in the environment that has SkyRL."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import grpodoctor
from grpodoctor.vocabulary.values import scalar

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-skyrl" / "bin" / "python"
PROGRAM = Path(__file__).with_name("train_skyrl.py")
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="make venv-skyrl creates it")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("skyrl")


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [PYTHON, PROGRAM, str(folder)], capture_output=True, text=True, timeout=280, check=False,
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_weights_are_those_of_a_training_without_grpodoctor(results: dict[str, Any]) -> None:
    assert results["attached"]["weights"] == results["plain"]["weights"]
    assert results["attached"]["missing"] == {}


def test_what_is_recorded_agrees_with_what_skyrl_logs(
    results: dict[str, Any], folder: Path
) -> None:
    run = grpodoctor.open_run(folder / "attached" / "grpodoctor")
    records = list(run)
    assert [record.step for record in records] == [1, 2, 3, 4]
    for record, (step, row) in zip(records, results["attached"]["rows"], strict=True):
        values = record.values
        assert record.step == step
        assert scalar(values["reward/mean"]) == pytest.approx(row["reward/avg_raw_reward"])
        assert scalar(values["length/mean"]) == pytest.approx(row["generate/avg_num_tokens"])
        assert scalar(values["optimizer/grad_norm"]) == row["policy/grad_norm"]
        assert scalar(values["time/step"]) == row["timing/step"]
        gap = values["mismatch/logprob_diff_max/worst_sequence"]
        logged = row["policy/rollout_train_logprobs_abs_diff_max"]
        assert scalar(gap) == pytest.approx(logged, abs=1e-6)
        assert scalar(values["advantage/abs_max"]) <= 1.5 + 1e-6  # 3 / sqrt(4), before the loss's
    assert run.manifest.framework == "skyrl"
    assert run.manifest.knobs["group_size"] == 4
    assert run.manifest.knobs["advantage"] == "group"


def test_the_responses_are_recorded_with_their_groups(
    results: dict[str, Any],
    folder: Path,
) -> None:
    run = grpodoctor.open_run(folder / "attached" / "grpodoctor")
    table = run.rollouts(2).to_pylist()
    assert len(table) == 16
    assert len({row["group_id"] for row in table}) == 4
    for row in table:
        tokens = [int(token) for token in row["text"].split()]
        assert row["length"] == len(tokens)
        assert row["reward"] == pytest.approx(tokens.count(7) / len(tokens))
        assert row["truncated"] == (tokens[-1] != 1)


def test_a_request_changes_the_normalization_of_advantages(
    results: dict[str, Any], folder: Path
) -> None:
    assert results["treated"]["weights"] == results["configured"]["weights"]
    assert results["treated"]["weights"] != results["plain"]["weights"]
    run = grpodoctor.open_run(folder / "treated" / "grpodoctor")
    (applied,) = [event for event in run.events if event.kind == "treatment-applied"]
    assert applied.body["after"] == {"advantage": "centred"}


def test_a_trainer_that_cannot_be_recorded_is_one_line(results: dict[str, Any]) -> None:
    begun, asynchronous = results["refusals"]
    assert "the training has begun; attach before trainer.train()" in begun
    assert "asynchronous trainer calls no callbacks; set trainer.logger" in asynchronous


def test_the_entry_point_attaches_to_the_trainer(results: dict[str, Any]) -> None:
    assert results["entry point"] == {"seed": 9, "callbacks": ["SkyrlCallback"]}
