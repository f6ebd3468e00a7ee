"""`check` and `watch` on files and folders that may not be read: one line, exit code 2."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROW = {"reward": 0.5, "reward_std": 0.1, "completions/mean_length": 10.0}
LINES = "".join(json.dumps({"step": step, **ROW}) + "\n" for step in range(1, 31))

_PR_CAPBSET_DROP = 24
_CAPABILITIES = (1, 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, by which root ignores permissions."""


def obey_permissions() -> None:
    libc = ctypes.CDLL(None)
    for capability in _CAPABILITIES:
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def run_without_privileges(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        preexec_fn=obey_permissions,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "run"
    for name in ("", "sub"):
        (folder / name).mkdir(parents=True)
        (folder / name / "metrics.jsonl").write_text(LINES)
    yield folder
    for path in (folder, folder / "sub"):
        path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["", "sub", "metrics.jsonl", "steps.jsonl", "run.json"])
def test_an_unreadable_path_is_one_line(run: Path, name: str) -> None:
    unreadable = run / name
    if not unreadable.exists():
        unreadable.write_text(json.dumps({"schema_version": 1}))
    unreadable.chmod(0)
    probe = run_without_privileges("-c", f"import os; print(os.access({str(unreadable)!r}, 4))")
    if probe.stdout.strip() != "False":
        pytest.skip("this process cannot give up reading what it may not")
    done = run_without_privileges("-m", "grpodoctor", "check", str(run))
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Permission denied" in done.stderr
    assert str(unreadable) in done.stderr
    assert "check the path and its permissions" in done.stderr
    assert done.stdout == ""
