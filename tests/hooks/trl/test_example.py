"""The script of the README: a plain TRL script plus one line, treated from another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import grpodoctor
from grpodoctor.vocabulary.values import scalar

ROOT = Path(__file__).parents[3]
SCRIPT = str(ROOT / "examples" / "attach_trl.py")


@pytest.mark.slow
def test_the_example_runs_and_is_recorded(tmp_path: Path) -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    result = subprocess.run(
        [sys.executable, SCRIPT, str(tmp_path / "trl"), "8"],
        capture_output=True, text=True, timeout=200, check=False, env=environment,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    run = grpodoctor.open_run(tmp_path / "trl" / "grpodoctor")
    assert [record.step for record in run] == [4, 8]


@pytest.mark.slow
def test_the_example_is_diagnosed_and_treated_from_another_process(tmp_path: Path) -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    run_dir = tmp_path / "trl" / "grpodoctor"
    watching = subprocess.Popen(
        [sys.executable, "-m", "grpodoctor", "watch", str(run_dir), "--apply", "safe",
         "--until-finished", "--exit-zero"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip
    try:
        result = subprocess.run(
            [sys.executable, SCRIPT, str(tmp_path / "trl"), "400"],
            capture_output=True, text=True, timeout=400, check=False, env=environment,
        )  # fmt: skip
        shown = watching.communicate(timeout=60)[0]
    finally:
        watching.kill()
    assert result.returncode == 0, result.stderr[-2000:]
    assert "large-policy-updates" in shown
    run = grpodoctor.open_run(run_dir)
    applied = [event for event in run.events if event.kind == "treatment-applied"]
    assert applied, shown
    assert applied[0].body["after"]["learning_rate"] < 0.05
    rates = {
        record.step: scalar(record.values["optimizer/learning_rate"]) for record in run.records
    }
    first = applied[0].step
    assert all(rate == 0.05 for step, rate in rates.items() if step < first)
    assert rates[next(step for step in rates if step >= first)] < 0.05
