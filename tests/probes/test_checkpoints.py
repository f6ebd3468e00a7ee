"""A probe of a mixture with an older checkpoint reports the changes between them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grpodoctor.probe.results.results_json import read_result
from tests.probes.models import variant


@pytest.mark.slow
def test_the_churn_between_two_checkpoints_is_measured(moe_model: Path, tmp_path: Path) -> None:
    older = variant(tmp_path / "older", moe_model, perturb=0.05)
    output = tmp_path / "probe"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "grpodoctor", "probe", "--no-attribution"),
            *("--sampler", f"transformers:{moe_model}?dtype=float32"),
            *("--learner", f"transformers:{moe_model}?dtype=bfloat16"),
            *("--limit", "6", "--samples", "2", "--max-tokens", "24"),
            *("--stale", older, "--output", output),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    (cell,) = read_result(output / "probe.json").cells
    assert cell.comparison is not None
    assert cell.comparison.experts is not None
    assert cell.churn is not None
    assert cell.churn.tokens == cell.comparison.tokens
    assert cell.churn.churn > 3 * cell.comparison.experts.churn
    assert "Since the older checkpoint" in " ".join(done.stdout.split())
    assert "older checkpoint compared with this one" in (output / "probe.html").read_text()
    stale = {each.name: each for each in cell.controls}["stale_weights"]
    assert stale.passed, stale.summary
