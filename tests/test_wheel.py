"""The wheel works away from the checkout, in an environment without torch."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import orjson
import pytest

ROOT = Path(__file__).parent.parent
FIXTURE = Path(__file__).parent / "data" / "run"


def _run(
    *command: str | Path, cwd: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=280, check=False,
        env=os.environ | (environment or {}),
    )  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it; returns its bin directory."""
    away = tmp_path_factory.mktemp("away")
    built = _run(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", away, ROOT, cwd=away
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = away.glob("*.whl")
    venv.create(away / "env")
    binaries = away / "env" / "bin"
    # Of ten thousand modules a few are imported; compiling all of them takes longer than the tests.
    installed = _run(
        sys.executable, "-m", "pip", "--python", binaries / "python", "install", "-q",
        "--no-compile", "-c", ROOT / "constraints.txt", wheel, cwd=away,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    return binaries


def test_version(installed: Path) -> None:
    result = _run(installed / "grpodoctor", "--version", cwd=installed)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "grpodoctor 0.1.0"


def test_rules_are_discovered(installed: Path) -> None:
    result = _run(installed / "grpodoctor", "rule", "--output-format", "json", cwd=installed)
    assert result.returncode == 0, result.stderr
    rules = orjson.loads(result.stdout)
    assert len(rules) >= 12
    assert all(set(rule) >= {"code", "name", "family", "summary"} for rule in rules)


def test_a_run_is_diagnosed_without_torch(installed: Path) -> None:
    assert _run(installed / "python", "-c", "import torch", cwd=installed).returncode != 0
    result = _run(
        installed / "grpodoctor", "check", FIXTURE, "--output-format", "json", cwd=installed
    )
    assert result.returncode == 1, result.stderr
    report = orjson.loads(result.stdout)
    assert report["run"]["framework"] == "grpodoctor"
    assert "MIS002" in {finding["code"] for finding in report["findings"]}


def test_a_feature_of_an_extra_names_it(installed: Path) -> None:
    result = _run(installed / "grpodoctor", "train", "--steps", "1", cwd=installed)
    assert result.returncode == 2
    assert "pip install 'grpodoctor[torch]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_dashboard_ships_in_the_wheel_and_names_its_extra(installed: Path) -> None:
    where = "from grpodoctor.support.programs import program as p; print(p('app', 'main.py'))"
    script = Path(_run(installed / "python", "-c", where, cwd=installed).stdout.strip())
    assert script.is_relative_to(installed.parent)
    assert (script.parent / ".streamlit" / "config.toml").is_file()
    assert (script.parent / "dashboard" / "icon.svg").is_file()
    result = _run(installed / "grpodoctor", "dashboard", FIXTURE, cwd=installed)
    assert result.returncode == 2
    assert "pip install 'grpodoctor[dashboard]'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model without training and without a tokenizer: prompts are ids."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=48, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
def test_a_probe_runs_its_own_programs_in_another_python(
    installed: Path, model: Path, tmp_path: Path
) -> None:
    where = (
        "from grpodoctor.support.programs import program as p; print(p('probes', 'engine_vllm.py'))"
    )
    found = _run(installed / "python", "-c", where, cwd=tmp_path)
    assert Path(found.stdout.strip()).is_relative_to(installed.parent), found.stderr
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt_token_ids": [{at}, 7, 9]}}\n' for at in range(2, 10)))
    spec = f"transformers:{model}?dtype=float32&python={sys.executable}"
    result = _run(
        *(installed / "grpodoctor", "probe", "--sampler", spec, "--learner", spec),
        *("--prompts", prompts, "--samples", "2", "--max-tokens", "8", "--no-attribution"),
        *("--output", tmp_path / "out", "--output-format", "json"),
        cwd=tmp_path,
        environment={"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    report = orjson.loads(result.stdout)
    (cell,) = report["cells"]
    assert cell["status"] == "done"
    assert cell["comparison"]["responses"] == 16
    assert all(control["passed"] for control in cell["controls"]), cell["controls"]
