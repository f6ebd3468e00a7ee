"""Reading files of lines that may be no files at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.runs.reading.native_run import NativeFollower, read_run
from grpodoctor.runs.records import EVENTS, STEPS, StepRecord


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [make_pipe, make_endless])
def test_pipes_and_devices_are_refused_without_blocking(make, tmp_path: Path) -> None:
    make(tmp_path / "alone")
    with pytest.raises(RunError, match="not a file"):
        read_run(tmp_path / "alone")
    (tmp_path / "run").mkdir()
    make(tmp_path / "run" / STEPS)
    with pytest.raises(RunError, match=r"not a file .*steps\.jsonl"):
        list(read_run(tmp_path / "run").steps)
    with pytest.raises(RunError, match="not a file"):
        NativeFollower(tmp_path / "run").poll()
    (tmp_path / "run" / STEPS).unlink()
    (tmp_path / "run" / STEPS).write_bytes(StepRecord(1, {}).to_line())
    make(tmp_path / "run" / EVENTS)
    with pytest.raises(RunError, match=r"not a file .*events\.jsonl"):
        read_run(tmp_path / "run")
