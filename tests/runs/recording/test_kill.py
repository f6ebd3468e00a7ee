"""Writers killed at random moments, and everything read back."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import MANIFEST, WRITER_PROCESS_LOCK, Manifest
from grpodoctor.runs.rollouts import rollout_files
from grpodoctor.support.files.locks import Lock
from grpodoctor.vocabulary.values import Mean

KILLS_PER_RUN = 5


@pytest.fixture
def crowd(writer_program: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(writer_program), "crowd"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.stdin.close()
        process.wait(30)


def _kill_one(crowd: subprocess.Popen[str], directory: Path, acks: Path, moment: float) -> None:
    """Kill a writer at a moment of its beginning, if negative, or of its recording."""
    crowd.stdin.write(f"{directory} {acks}\n")
    crowd.stdin.flush()
    pid = int(crowd.stdout.readline())
    if moment > 0:
        _wait_until(lambda: len(_acknowledged(acks)) > 1)
    time.sleep(abs(moment))
    os.kill(pid, signal.SIGKILL)
    _wait_until(lambda: not _is_alive(pid))
    if (directory / WRITER_PROCESS_LOCK).exists():
        Lock.take(directory / WRITER_PROCESS_LOCK, 30).release()  # its writer_process has ended too


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _acknowledged(acks: Path) -> list[int]:
    return [int(line) for line in acks.read_text().split()] if acks.exists() else []


@pytest.mark.parametrize("runs", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_writers_lose_at_most_the_step_in_flight(
    tmp_path: Path, crowd: subprocess.Popen[str], runs: int
) -> None:
    moments = random.Random(0)
    recorded = 0
    for number in range(runs):
        directory = tmp_path / f"run-{number}"
        for attempt in range(KILLS_PER_RUN):
            acks = tmp_path / f"acks-{number}-{attempt}"
            moment = moments.uniform(0, 0.15) if attempt % 2 else -moments.uniform(0, 0.5)
            _kill_one(crowd, directory, acks, moment)
            if not (directory / MANIFEST).exists():
                continue  # killed before there was a run
            acknowledged = _acknowledged(acks)
            run = read_run(directory)
            steps = [record.step for record in run.steps]
            assert run.damaged_lines == 0
            assert steps == list(range(len(steps)))
            assert set(acknowledged[:-1]) <= set(steps)
        recorded += _check_rollouts(directory, steps)
        kinds = [event.kind for event in read_run(directory).events]
        assert set(kinds) <= {"started", "resumed"}
    assert recorded  # how many depends on the speed of the machine


def _check_rollouts(directory: Path, steps: list[int]) -> int:
    files = rollout_files(directory)
    assert set(files) <= set(steps)
    for paths in files.values():
        for path in paths:
            assert pq.read_table(path).num_rows == 4
    return len(files)


def test_a_run_resumes_after_a_half_written_line(tmp_path: Path) -> None:
    with Recorder.open(tmp_path, Manifest(), depth="off") as run:
        for step in range(3):
            run.step(step, {"reward/mean": Mean.of([1.0])})
    for name in ("steps.jsonl", "events.jsonl"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[:-9])
    with Recorder.open(tmp_path, Manifest(), depth="off", resume=True) as run:
        run.step(2, {"reward/mean": Mean.of([2.0])})
    read = read_run(tmp_path)
    assert [record.step for record in read.steps] == [0, 1, 2]
    assert [(each.file, each.line) for each in read.damage] == [
        ("events.jsonl", 2),
        ("steps.jsonl", 3),
    ]
    resumed = next(event for event in read.events if event.kind == "resumed")
    assert resumed.step == 1
