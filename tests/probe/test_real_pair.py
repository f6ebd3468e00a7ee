"""A real pair on the command line: vLLM in its own environment, transformers in this one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpodoctor.probe.results.results_json import read_result
from grpodoctor.probe.severity import figure
from tests.probes.models import dense

VLLM = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.skipif(not VLLM.exists(), reason="vLLM has no environment here: make venv-vllm")
def test_vllm_against_transformers(tmp_path: Path) -> None:
    """One sampler and one learner with all controls, without attribution."""
    model, out = dense(tmp_path / "model"), tmp_path / "out"
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"{number}+{number % 7}=\n" for number in range(10, 34)))
    sampler = f"vllm:{model}?python={VLLM}&dtype=float32&max_model_len=128"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "grpodoctor", "probe", "--sampler", sampler),
            *("--learner", f"transformers:{model}?dtype=float32", "--prompts", prompts),
            *("--samples", "2", "--max-tokens", "24", "--no-attribution", "--output", out),
        ],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        | {"OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = read_result(out / "probe.json")
    (cell,) = result.cells
    assert cell.comparison is not None
    assert cell.comparison.responses == 48
    assert 0 < figure(cell.comparison, "mismatch/prob_diff_mean") < 1e-5
    assert {control.name: control.passed for control in cell.controls} == {
        "self_scoring": True, "repeat": True, "same_weights": True, "stale_weights": True,
    }  # fmt: skip
    assert {facts.name for facts in result.engines.values()} == {"vllm", "transformers"}
    assert cell.comparison.worst[0].token_texts
