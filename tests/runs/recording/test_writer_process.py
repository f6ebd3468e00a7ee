"""The process that writes: what it survives, what survives it, and what it leaves behind."""

import gc
import logging
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from grpodoctor.errors import RunError
from grpodoctor.measure.batch import RolloutBatch, UpdateBatch
from grpodoctor.measure.step import StepBatch, step_readings
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.recording import directory as opening
from grpodoctor.runs.recording import recorder
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.recording.wire import Wire
from grpodoctor.runs.recording.writer_client import WriterProcess
from grpodoctor.runs.records import Manifest
from grpodoctor.runs.rollouts import rollout_files
from grpodoctor.vocabulary.values import Mean

Batches = Callable[..., RolloutBatch]
READY = {"reward/mean": Mean.of([1.0])}


def steps_of(path: Path) -> list[int]:
    return [record.step for record in read_run(path).steps]


def writer_processes_of(path: Path) -> list[int]:
    """Process ids of living scribes of a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if (
            b"grpodoctor.runs.recording.writer_process" in arguments
            and str(path).encode() in arguments
        ):
            found.append(int(process.name))
    return found


def wait_until(true: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_killed_writer_process_ends_recording_once_and_keeps_the_file(
    tmp_path: Path, make_batch: Batches, caplog: pytest.LogCaptureFixture
) -> None:
    with Recorder.open(tmp_path, Manifest()) as run:
        for step in range(3):
            run.step(step, StepBatch(rollouts=make_batch(step)))
        assert run.flush()
        run._writer.process.kill()
        for step in range(3, 6):
            run.step(step, StepBatch(rollouts=make_batch(step)))
            run.event("warning", step)
        assert not run.flush()
    assert run.failure == (
        "recording ended at step 3: the writer process was ended by SIGKILL (exit code -9)"
    )
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    read = read_run(tmp_path)
    assert [record.step for record in read.steps] == [0, 1, 2]
    assert list(rollout_files(tmp_path)) == [0, 1, 2]
    assert not read.damage
    with Recorder.open(tmp_path, Manifest(), resume=True) as run:
        run.step(3, READY)
    assert steps_of(tmp_path) == [0, 1, 2, 3]


def test_a_writer_process_that_cannot_start_ends_recording_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for program, why in (
        ("/nowhere/python", "No such file or directory"),
        ("/bin/false", "the writer process was ended (exit code 1)"),
    ):
        caplog.clear()
        monkeypatch.setattr(sys, "executable", program)
        with Recorder.open(tmp_path / program[1:4], Manifest()) as run:
            for step in range(3):
                run.step(step, READY)
        assert run.failure == f"recording ended at step 0: {why}"
        assert len(caplog.records) == 1


def test_readings_that_cannot_be_handed_over_end_recording_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Recorder.open(tmp_path, Manifest()) as run:
        run.step(0, READY)
        run.step(1, {"reward/mean": lambda: 1.0})
        run.step(2, READY)
    assert "recording ended at step 1" in run.failure
    assert len(caplog.records) == 1
    assert steps_of(tmp_path) == [0]


def test_a_writer_process_that_hangs_does_not_keep_the_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder, "CLOSE_WAIT_SECONDS", 0.5)
    monkeypatch.setattr(opening, "WRITER_WAIT_SECONDS", 0.5)
    run = Recorder.open(tmp_path, Manifest())
    run.step(0, READY)
    assert run.flush()
    writer_process = run._writer.process
    writer_process.send_signal(signal.SIGSTOP)
    try:
        run.step(1, READY)
        run.close()
        assert writer_process.poll() is None  # it still hangs
        assert "recording ended at step 1: the writer process does not respond" in run.failure
        assert len(caplog.records) == 1
        with pytest.raises(RunError, match=rf"process {writer_process.pid} on .* is still writing"):
            Recorder.open(tmp_path, Manifest(), resume=True)
    finally:
        writer_process.send_signal(signal.SIGCONT)
    assert writer_process.wait(20) == 0
    assert steps_of(tmp_path) == [0, 1]  # it had been handed over, so it was written


_TRAINER = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[2])
from writer import batch
from grpodoctor.measure.step import StepBatch
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Manifest
run = Recorder.open(sys.argv[1], Manifest(), depth="full")
def train():
    for step in range(4):
        run.step(step, StepBatch(rollouts=batch(step)))
"""


@pytest.fixture
def run_trainer(tmp_path: Path, writer_program: Path) -> Callable[..., subprocess.Popen[str]]:
    def start(program: str, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _TRAINER + program, str(tmp_path), writer_program.parent],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    return start


def test_the_writer_process_finishes_its_jobs_when_the_trainer_is_killed(
    tmp_path: Path, run_trainer: Callable[..., subprocess.Popen[str]]
) -> None:
    """The step it is busy with takes it a second or two: there is much text to measure."""
    program = """
from dataclasses import replace
train()
assert run.flush()
print(run._writer.process.pid, flush=True)
run.step(4, StepBatch(rollouts=replace(batch(4), texts=[os.urandom(4_000_000).hex()] * 4)))
time.sleep(0.4)
print("handed over", flush=True)
time.sleep(60)
"""
    with run_trainer(program) as trainer:
        writer_process = int(trainer.stdout.readline())
        assert trainer.stdout.readline() == "handed over\n"
        trainer.kill()
        trainer.wait(10)
    assert writer_processes_of(tmp_path) == [writer_process]
    with Recorder.open(tmp_path, Manifest(), resume=True) as run:
        # A process has no command line yet at the moment in which it is begun.
        wait_until(lambda: writer_processes_of(tmp_path) == [run._writer.process.pid])
        run.step(5, READY)
    assert steps_of(tmp_path) == [0, 1, 2, 3, 4, 5]
    assert list(rollout_files(tmp_path)) == [0, 1, 2, 3, 4]
    assert not read_run(tmp_path).damage


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise RuntimeError", "train()"])
def test_a_trainer_that_ends_without_closing_loses_nothing(
    tmp_path: Path, run_trainer: Callable[..., subprocess.Popen[str]], end: str
) -> None:
    with run_trainer(f"train()\n{end}") as trainer:
        trainer.communicate(timeout=60)
    again = [0, 1, 2, 3] if end == "train()" else []
    assert steps_of(tmp_path) == [0, 1, 2, 3, *again]
    assert list(rollout_files(tmp_path)) == [0, 1, 2, 3]
    assert writer_processes_of(tmp_path) == []


def test_ctrl_c_on_the_trainer_leaves_a_complete_record(
    tmp_path: Path, run_trainer: Callable[..., subprocess.Popen[str]]
) -> None:
    """The signal goes to the whole process group, as a terminal sends it."""
    program = """
with run:
    for step in range(10_000):
        run.step(step, StepBatch(rollouts=batch(step)))
        print(step, flush=True)
        time.sleep(0.01)
"""
    with run_trainer(program, start_new_session=True) as trainer:
        for _ in range(5):
            trainer.stdout.readline()
        os.killpg(trainer.pid, signal.SIGINT)
        printed, complaint = trainer.communicate(timeout=60)
    assert "KeyboardInterrupt" in complaint
    assert "recording ended" not in complaint
    last = int(printed.split()[-1]) if printed.split() else 4
    assert steps_of(tmp_path)[: last + 1] == list(range(last + 1))
    assert set(rollout_files(tmp_path)) == set(steps_of(tmp_path))
    assert writer_processes_of(tmp_path) == []


def test_a_writer_process_that_exits_late_causes_no_warning(tmp_path: Path) -> None:
    """A deleted `Popen` warns if its process is running, as on a machine with much other work."""
    writer = WriterProcess(tmp_path, None, "off", worst=0, rank=1)
    pid = writer.process.pid
    writer.process.send_signal(signal.SIGSTOP)
    writer.stop(timeout=0.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del writer
        gc.collect()
    assert not [each for each in caught if f"subprocess {pid} " in str(each.message)]
    os.kill(pid, signal.SIGCONT)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it exits by itself


def test_the_writer_process_ignores_signals_to_the_trainer(tmp_path: Path) -> None:
    with Recorder.open(tmp_path, Manifest()) as run:
        run.step(0, READY)
        assert run.flush()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            run._writer.process.send_signal(number)
        run.step(1, READY)
    assert run.failure is None
    assert run._writer.process.returncode == 0
    assert steps_of(tmp_path) == [0, 1]


def test_the_writer_process_imports_no_torch_and_runs_at_low_priority(
    tmp_path: Path, make_batch: Batches
) -> None:
    with Recorder.open(tmp_path, Manifest(), depth="full") as run:
        run.step(0, StepBatch(rollouts=make_batch(0)))
        assert run.flush()
        pid = run._writer.process.pid
        loaded = Path(f"/proc/{pid}/maps").read_text()
        assert "libarrow" in loaded
        assert "libtorch" not in loaded
        assert os.getpriority(os.PRIO_PROCESS, pid) >= min(
            os.getpriority(os.PRIO_PROCESS, 0) + 5, 19
        )
    code = "import sys, grpodoctor.runs.recording.writer_process; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert not {"torch", "transformers", "scipy", "pandas"} & set(modules)


def test_a_program_whose_main_module_has_no_guard_is_not_run_twice(
    tmp_path: Path, writer_program: Path
) -> None:
    script = tmp_path / "train.py"
    patience = (
        "from grpodoctor.runs.recording import recorder\nrecorder.CLOSE_WAIT_SECONDS = 50.0\n"
    )
    script.write_text(f"print('main', flush=True)\n{patience}{_TRAINER}\ntrain()\nrun.close()\n")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run"), str(writer_program.parent)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.stdout == "main\n"
    assert steps_of(tmp_path / "run") == [0, 1, 2, 3]


def test_a_removed_working_directory_and_a_relative_path_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Recorder.open("run", Manifest()) as run:
        monkeypatch.chdir(tmp_path / "elsewhere")
        shutil.rmtree(tmp_path / "elsewhere")
        run.step(0, READY)
        monkeypatch.chdir(tmp_path)
    assert run.failure is None
    assert steps_of(tmp_path / "run") == [0]


@pytest.fixture
def wires() -> Iterator[tuple[Wire, Wire]]:
    one, other = (Wire(end) for end in socket.socketpair())
    yield one, other
    one.close()
    other.close()


@pytest.mark.parametrize("width", [3, 5000])
def test_a_batch_is_unchanged_by_the_wire(
    wires: tuple[Wire, Wire], make_batch: Batches, width: int
) -> None:
    sent = _step(make_batch(0, width=width))
    received: list[object] = []
    reader = threading.Thread(target=lambda: received.append(wires[1].receive()))
    reader.start()
    wires[0].send(sent)
    reader.join(20)
    (batch,) = received
    assert isinstance(batch, StepBatch)
    assert pickle.dumps(batch) == pickle.dumps(pickle.loads(pickle.dumps(sent)))  # noqa: S301
    assert step_readings(batch) == step_readings(sent)


def test_half_an_object_ends_the_connection(wires: tuple[Wire, Wire]) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"\0\0\0\1\0\0\0\0\0\0\0\x09abc")
        one.shutdown(socket.SHUT_RDWR)
        with pytest.raises(EOFError):
            Wire(other).receive()


def _step(rollouts: RolloutBatch) -> StepBatch:
    """Two updates on half of the responses each."""
    logprobs_BT = rollouts.learner_logprobs_BT
    updates = [
        UpdateBatch(
            sequence_ids=rollouts.sequence_ids[rows],
            new_logprobs_BT=logprobs_BT[rows] + 0.1,
            old_logprobs_BT=logprobs_BT[rows],
            advantages_BT=np.broadcast_to(
                rollouts.advantages_B[rows, None], logprobs_BT[rows].shape
            ),
            loss_mask_BT=rollouts.mask_BT[rows],
            loss=0.5,
            grad_norm=1.5,
            learning_rate=1e-4,
            clip_low=0.2,
            clip_high=0.2,
            entropy_BT=rollouts.entropy_BT[rows],
        )
        for rows in (slice(0, 4), slice(4, 8))
    ]
    return StepBatch(rollouts=rollouts, updates=updates, readings=READY)
