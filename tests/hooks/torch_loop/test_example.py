"""The example in docs/hooks.md."""

import subprocess
import sys
from pathlib import Path

import pytest

import grpodoctor
from grpodoctor.vocabulary.values import scalar

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_example_loop_runs_and_is_recorded(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "grpo_loop.py"), str(tmp_path / "run"), "8"],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "torch · tiny Qwen2 · seed 0 · steps 0 to 7" in result.stdout
    run = grpodoctor.open_run(tmp_path / "run")
    measured = run.records[-1].values
    for name in (
        "reward/mean",
        "entropy/mean",
        "clip/high_rate",
        "mismatch/kl_k3",
    ):
        assert scalar(measured[name]) is not None
    assert scalar(measured["updates_per_batch"]) == 2
    assert scalar(measured["instruments/failed_parts"]) == 0
    assert run.manifest.knobs == {"learning_rate": 3e-3}
