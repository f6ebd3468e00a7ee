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


def make_unreadable(path: Path) -> None:
    path.chmod(0)
    probe = run_without_privileges("-c", f"import os; print(os.access({str(path)!r}, 4))")
    if probe.stdout.strip() != "False":
        pytest.skip("this process cannot give up reading what it may not")


@pytest.mark.parametrize("name", ["sub", "metrics.jsonl", "run.json"])
def test_an_unreadable_part_hides_no_other_log(run: Path, name: str) -> None:
    (run / "run.json").write_text("{}")
    make_unreadable(run / name)
    done = run_without_privileges("-m", "grpodoctor", "check", "--exit-zero", str(run))
    assert "(30 read)" in done.stdout
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (
        f"1 unreadable file skipped; the first: all of {name}: cannot be read: Permission denied"
        in " ".join(done.stdout.split())
    )


def test_a_folder_that_may_be_listed_but_not_entered_hides_no_other_log(run: Path) -> None:
    make_unreadable(run / "sub")
    (run / "sub").chmod(0o444)
    done = run_without_privileges("-m", "grpodoctor", "check", "--exit-zero", str(run))
    assert "(30 read)" in done.stdout
    assert done.stderr == ""
    assert (
        "1 unreadable file skipped; the first: all of sub/metrics.jsonl: "
        "cannot be read: Permission denied" in " ".join(done.stdout.split())
    )


def test_a_run_with_nothing_readable_is_one_line(run: Path) -> None:
    make_unreadable(run / "sub")
    make_unreadable(run / "metrics.jsonl")
    done = run_without_privileges("-m", "grpodoctor", "check", str(run))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize("name", ["", "steps.jsonl"])
def test_an_unreadable_path_is_one_line(run: Path, name: str) -> None:
    unreadable = run / name
    if not unreadable.exists():
        unreadable.write_text(json.dumps({"schema_version": 1}))
    make_unreadable(unreadable)
    done = run_without_privileges("-m", "grpodoctor", "check", str(run))
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Permission denied" in done.stderr
    assert str(unreadable) in done.stderr
    assert "check the path and its permissions" in done.stderr
    assert done.stdout == ""
