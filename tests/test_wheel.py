"""The wheel works away from the checkout, in an environment without torch."""

import subprocess
import sys
import venv
from pathlib import Path

import orjson
import pytest

ROOT = Path(__file__).parent.parent
FIXTURE = Path(__file__).parent / "data" / "run"


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=280, check=False
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it; returns its bin directory."""
    away = tmp_path_factory.mktemp("away")
    built = _run(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", away, ROOT, cwd=away
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = away.glob("*.whl")
    venv.create(away / "env", with_pip=True)
    binaries = away / "env" / "bin"
    installed = _run(
        binaries / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel,
        cwd=away,
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
