"""tinker-cookbook's own loggers with grpodoctor attached, in the environment that has them."""

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
PYTHON = ROOT / ".venv-tinker" / "bin" / "python"
PROGRAM = Path(__file__).with_name("log_tinker.py")
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="make venv-tinker creates it")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tinker")


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [PYTHON, PROGRAM, str(folder)], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_each_row_is_a_step_and_the_config_is_the_one_that_tinker_wrote(
    results: dict[str, Any], folder: Path
) -> None:
    assert results == {"missing": [], "store": True}
    run = grpodoctor.open_run(folder / "grpodoctor")
    records = list(run)
    assert [record.step for record in records] == [0, 1, 2, 3]
    values = records[3].values
    assert scalar(values["reward/mean"]) == 0.5
    assert scalar(values["groups/effective_rate"]) == 0.75
    assert scalar(values["mismatch/kl_k1"]) == 0.003
    assert run.manifest.knobs["group_size"] == 8
    assert any(event.kind == "finished" for event in run.events)


def test_the_reward_of_a_distillation_is_not_recorded(
    results: dict[str, Any], folder: Path
) -> None:
    assert results["store"]
    for record in grpodoctor.open_run(folder / "distilled"):
        assert "reward/mean" not in record.values
        assert scalar(record.values["kl/teacher"]) == 0.4
