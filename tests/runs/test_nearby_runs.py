"""Finding runs below a folder, and the run of a process."""

import contextlib
import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpodoctor.errors import InputError
from grpodoctor.runs.reading.nearby_runs import nearby_runs
from grpodoctor.runs.reading.process_runs import runs_of_process
from tests.report.simulated import record_run

LOG = Path(__file__).parents[1] / "data" / "logs" / "deltasthicc_trainer_state.json.gz"
PATIENCE = 60.0


def write_trl(folder):
    log = folder / "checkpoint-800" / "trainer_state.json"
    log.parent.mkdir(parents=True)
    log.write_bytes(gzip.decompress(LOG.read_bytes()))
    return log


def test_runs_of_every_origin_are_found_last_written_first(tmp_path):
    record_run(tmp_path / "runs" / "old", 3)
    os.utime(tmp_path / "runs" / "old" / "steps.jsonl", (1, 1))
    for name in ("run.json", "events.jsonl"):
        os.utime(tmp_path / "runs" / "old" / name, (1, 1))
    write_trl(tmp_path / "outputs")
    (tmp_path / "train.log").write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.5}\n')
    (tmp_path / "runs" / "old.log").write_bytes((tmp_path / "train.log").read_bytes())
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / ".venv").mkdir()
    record_run(tmp_path / ".venv" / "hidden", 3)
    found = [run.path for run in nearby_runs(tmp_path)]
    assert set(found) == {
        tmp_path / "outputs",
        tmp_path / "train.log",
        tmp_path / "runs" / "old",
    }
    assert found[-1] == tmp_path / "runs" / "old"


def test_a_search_ends_in_time_and_needs_no_run(tmp_path):
    assert nearby_runs(tmp_path) == []
    for number in range(500):
        (tmp_path / f"{number}.jsonl").write_text('{"step": 1, "reward": 0.5}\n' * 100)
    assert len(nearby_runs(tmp_path, seconds=0.0)) == 0
    assert nearby_runs(tmp_path / "missing") == []


@pytest.fixture
def start():
    """Starts Python code in a process of its own, and waits until it prints a line."""
    processes = []

    def run(code, *arguments, **options):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that its children can be ended with it
            **options,
        )
        processes.append(process)
        assert process.stdout.readline()
        return process

    yield run
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


RECORD = """
import sys, time
from pathlib import Path
from grpodoctor.runs.recording.recorder import Recorder
from tests.report.simulated import manifest, readings
recorder = Recorder.open(Path(sys.argv[1]), manifest())
recorder.step(0, readings(0, sick_from=None))
assert recorder.flush()  # the step is written by another process
print("recording", flush=True)
time.sleep(300)
"""
LOGGING = """
import sys, time
file = open(sys.argv[1], "a")
file.write('{"step": 1, "reward": 0.5}\\n{"step": 2, "reward": 0.5}\\n')
file.flush()
print("logging", flush=True)
time.sleep(300)
"""
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


def test_the_run_that_a_process_records(start, tmp_path):
    process = start(RECORD, tmp_path / "run")
    assert runs_of_process(process.pid) == [tmp_path / "run"]


def test_the_log_of_a_child_process(start, tmp_path):
    process = start(CHILD, LOGGING, tmp_path / "train.jsonl")
    assert runs_of_process(process.pid) == [tmp_path / "train.jsonl"]


def test_a_process_without_a_run_is_said_with_the_runs_nearby(start, tmp_path):
    record_run(tmp_path / "run", 3)
    process = start("import time; print(1, flush=True); time.sleep(300)", cwd=tmp_path)
    with pytest.raises(InputError, match="keeps no run or log open") as caught:
        runs_of_process(process.pid)
    assert str(tmp_path / "run") in str(caught.value)
    assert f"--pid {process.pid}" in str(caught.value)


@pytest.mark.slow
def test_a_log_that_is_only_read_is_not_the_run(start, tmp_path):
    (tmp_path / "other.jsonl").write_text('{"step": 1, "reward": 0.5}\n')
    code = "import sys, time; f = open(sys.argv[1]); print(1, flush=True); time.sleep(300)"
    with pytest.raises(InputError, match="keeps no run"):
        runs_of_process(start(code, tmp_path / "other.jsonl").pid)


def test_a_process_that_does_not_exist(start):
    process = start("print(1, flush=True)")
    ends = time.monotonic() + PATIENCE
    while process.poll() is None:
        assert time.monotonic() < ends
    with pytest.raises(InputError, match="no such process"):
        runs_of_process(process.pid)
