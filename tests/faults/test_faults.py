"""A sample of the points of `make faults`, and the harness itself."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import shim
from tests.faults.harness import spread
from tests.faults.shim import Fault

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(
    not (shutil.which("cc") or shutil.which("gcc")), reason="the injected library is compiled"
)


@pytest.mark.slow
@needs_compiler
@pytest.mark.timeout(900)
def test_a_sample_of_faults_breaks_no_promise() -> None:
    scenarios = ("train", "send requests", "console", "check as report.md")
    chosen = [part for name in scenarios for part in ("--scenario", name)]
    program = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--sample", "2", "--json", *chosen],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert program.returncode == 0, program.stderr
    points: dict[str, int] = json.loads(program.stdout)["points"]
    assert set(points) == {"recorder", "checkpoint", "mailbox", "readers", "reports"}
    assert all(count >= 2 for count in points.values()), points


@needs_compiler
def test_the_call_asked_for_fails_and_no_other(tmp_path: Path) -> None:
    root, control = tmp_path / "root", tmp_path / "control"
    root.mkdir()
    shim.Control(control, root).set(Fault("write", errno.ENOSPC, shim.HELPER), 2)
    source = (
        "import os, sys\n"
        "for name in ('root/a', 'root/b', 'elsewhere', 'root/c'):\n"
        "    fd = os.open(name, os.O_WRONLY | os.O_CREAT)\n"
        "    try: os.write(fd, b'x'); print('ok')\n"
        "    except OSError as error: print(error.errno)"
    )
    variables = {**os.environ, "LD_PRELOAD": str(shim.compiled()), "FAULT_CONTROL": str(control)}
    program = subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert program.stdout.split() == ["ok", str(errno.ENOSPC), "ok", "ok"]


def test_numbers_are_spread_from_the_first_to_the_last() -> None:
    assert spread(0, 40) == []
    assert spread(3, 40) == [1, 2, 3]
    numbers = spread(100_000, 40)
    assert numbers[:5] == list(range(1, 6))
    assert numbers[-1] == 100_000
    assert len(numbers) <= 50
