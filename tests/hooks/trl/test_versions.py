"""The tests of this folder under older versions of TRL, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".venv-trl"
"""Made by `make venv-trl`."""
TESTS = ("test_private_names.py", "test_attach_trl.py", "test_engine.py", "test_knobs.py")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", ["0.29.0", "1.0.0", "1.14.0"])
def test_an_older_version_is_observed_alike(version: str) -> None:
    if not (FOLDER / version / ".installed").exists():
        pytest.skip("run: make venv-trl")
    files = [str(Path(__file__).with_name(name)) for name in TESTS]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *files],
        capture_output=True, text=True, check=False, timeout=1700, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(FOLDER / version)},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-5000:]
