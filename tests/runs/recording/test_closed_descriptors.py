"""User code that closes all descriptors, as launchers and daemons do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from grpodoctor.runs.reading.native_run import read_run

PROGRAM = """
import os, sys
from pathlib import Path
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Manifest
from grpodoctor.vocabulary.values import Mean

home = Path(sys.argv[1])
with Recorder.open(home / "run", Manifest(), depth="off") as run:
    run.step(1, {"reward/mean": Mean.of([1.0])})
    run.flush()
    os.closerange(3, 200)
    files = [(home / f"user-{number}").open("w+") for number in range(12)]
    for file in files:
        file.write("mine")
        file.flush()
    run.step(2, {"reward/mean": Mean.of([1.0])})
    run.step(3, {"reward/mean": Mean.of([1.0])})
for file in files:
    file.write(" still")
    file.flush()
"""


def test_the_files_opened_after_that_are_left_alone(tmp_path: Path) -> None:
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert program.returncode == 0, program.stderr
    assert len(program.stderr.splitlines()) == 1
    assert "other code of this process closed" in program.stderr
    assert [record.step for record in read_run(tmp_path / "run").steps] == [1]
    assert {path.read_text() for path in tmp_path.glob("user-*")} == {"mine still"}
