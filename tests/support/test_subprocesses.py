"""Worker processes that run a module of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grpodoctor.support.subprocesses import LineWorker, module_command, worker_environment

ECHO = """
import os, sys
for line in sys.stdin:
    if line == "die\\n":
        os._exit(1)
    if line == "hang\\n":
        import time
        time.sleep(3600)
    print(line.strip().upper(), flush=True)
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LineWorker:
    (tmp_path / "line_echo.py").write_text(ECHO)
    monkeypatch.syspath_prepend(tmp_path)
    return LineWorker("line_echo")


def test_each_line_is_answered_by_one_line(worker: LineWorker) -> None:
    assert worker.request(b"one\n", 60) == b"ONE\n"
    assert worker.request(b"two\n", 60) == b"TWO\n"
    worker.close()


def test_a_worker_that_dies_or_hangs_is_replaced_at_the_next_request(worker: LineWorker) -> None:
    assert worker.request(b"die\n", 60) is None
    assert worker.request(b"one\n", 60) == b"ONE\n"
    assert worker.request(b"hang\n", 0.2) is None
    assert worker.request(b"two\n", 60) == b"TWO\n"
    worker.close()


def test_a_worker_imports_this_package_from_any_folder(tmp_path: Path) -> None:
    code = "import grpodoctor, os; print(os.environ['LEVEL'], grpodoctor.__name__)"
    command = [sys.executable, "-P", "-c", code]
    answer = subprocess.run(
        command, env=worker_environment(LEVEL="3"), cwd=tmp_path, capture_output=True, check=True
    )
    assert answer.stdout.split() == [b"3", b"grpodoctor"]
    assert module_command("json.tool", Path("x"), 1)[1:] == ["-P", "-m", "json.tool", "x", "1"]
