from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples import sampled

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc"
)


@pytest.mark.slow
@pytest.mark.parametrize("files", sampled([1, 6], {6}))
def test_memory_does_not_grow_with_the_dump(tmp_path: Path, files: int) -> None:
    """300 MB, a third of what reading it at once would take; `make large-dump` reads 5 GB."""
    command = [
        sys.executable,
        "-m",
        "tests.runs.rollout_dumps.large",
        str(tmp_path),
        "300",
        str(files),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    steps, responses, megabytes = map(int, done.stdout.split())
    assert steps == files
    assert responses > 50_000
    assert megabytes < 300
