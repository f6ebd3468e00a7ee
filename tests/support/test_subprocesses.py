"""Worker processes that run a module of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from grpodoctor.support.subprocesses import module_command, worker_environment


def test_a_worker_imports_this_package_from_any_folder(tmp_path: Path) -> None:
    code = "import grpodoctor, os; print(os.environ['LEVEL'], grpodoctor.__name__)"
    command = [sys.executable, "-P", "-c", code]
    answer = subprocess.run(
        command, env=worker_environment(LEVEL="3"), cwd=tmp_path, capture_output=True, check=True
    )
    assert answer.stdout.split() == [b"3", b"grpodoctor"]
    assert module_command("json.tool", Path("x"), 1)[1:] == ["-P", "-m", "json.tool", "x", "1"]
