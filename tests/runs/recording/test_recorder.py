"""The recorder against a slow disk, a full disk, a removed directory and a second writer."""

import logging
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.recording.jobs import StepJob, batch_bytes
from grpodoctor.runs.recording.recorder import LINE_WAIT_SECONDS, Recorder
from grpodoctor.runs.records import EVENTS, MANIFEST, STEPS, Manifest
from grpodoctor.runs.rollouts import rollout_files
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Rate, Reading

Batches = Callable[..., RolloutBatch]


def reward(value: float = 1.0) -> dict[str, Reading]:
    return {"reward/mean": Mean.of([value])}


def test_recorded_values_are_read_back(tmp_path: Path, make_batch: Batches) -> None:
    readings: dict[str, Reading] = {
        "reward/mean": Mean.of([0.25, 0.5, float("nan")]),
        "ratio/max": Max(float("inf"), "a\ud800"),
        "length/truncated_rate": Rate(1, 3),
        "clip/low_rate": NotApplicable("one update per batch"),
    }
    with Recorder.open(tmp_path / "run", Manifest(model="tiny", knobs={"clip_low": 0.2})) as run:
        run.step(0, readings, rollouts=make_batch(0))
        run.event("warning", 0, {"text": "\ud800", "huge": 2**80, "nan": float("nan")})
        run.step(1, reward(), knobs={"clip_low": 0.3})
    read = read_run(tmp_path / "run")
    first, second = read.steps
    assert read.manifest.model == "tiny"
    assert first.values == {**readings, "ratio/max": Max(float("inf"), "a?")}
    assert second.knobs == {"clip_low": 0.3}
    cost = second.values["time/record"]
    assert isinstance(cost, Mean)
    assert 0 < cost.value < 0.2
    assert [event.kind for event in read.events] == ["started", "warning", "finished"]
    assert read.events[1].body["text"] == "?"
    assert read.events[1].body["nan"] is None
    assert read.rollouts(0).num_rows == 8
    assert not read.damage
    assert run.failure is None


def record_waits(run: Recorder, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, bool]]:
    """The timeouts that the recorder waits for from now on, and whether the wait succeeded."""
    waits: list[tuple[float, bool]] = []
    original = run._changed.wait_for

    def wait_for(predicate: Callable[[], object], timeout: float | None = None) -> bool:
        done = bool(original(predicate, timeout))
        if timeout is not None:
            waits.append((timeout, done))
        return done

    monkeypatch.setattr(run._changed, "wait_for", wait_for)
    return waits


def record_while_stopped(
    run: Recorder, make_batch: Batches, monkeypatch: pytest.MonkeyPatch, steps: int
) -> list[float]:
    """Record steps while the writer process is stopped; return the waits that timed out."""
    run.step(0, reward())
    assert run.flush(10)
    run._writer.process.send_signal(signal.SIGSTOP)
    waits = record_waits(run, monkeypatch)
    for step in range(1, steps):
        run.step(step, reward(), rollouts=make_batch(step), knobs={"clip_low": step / 100})
    run._writer.process.send_signal(signal.SIGCONT)
    assert run.flush(30)
    return [timeout for timeout, done in waits if not done]


def test_a_stuck_writer_delays_once_and_loses_nothing_small(
    tmp_path: Path, make_batch: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recorder.open(tmp_path, Manifest()) as run:
        timeouts = record_while_stopped(run, make_batch, monkeypatch, 40)
    assert timeouts == [LINE_WAIT_SECONDS]
    read = read_run(tmp_path)
    assert [record.step for record in read.steps] == list(range(40))
    assert list(rollout_files(tmp_path)) == list(range(1, 40))
    assert [event.kind for event in read.events] == ["started", "finished"]


def test_a_stuck_writer_drops_rollouts_before_steps(
    tmp_path: Path,
    make_batch: Batches,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = batch_bytes(StepJob(1, reward(), make_batch(1), {}, 0.0, None))
    limits = {"MAX_QUEUE": 16, "MAX_QUEUED_BYTES_FOR_ROLLOUTS": 4 * size}
    for name, limit in limits.items():
        monkeypatch.setattr(f"grpodoctor.runs.recording.recorder.{name}", limit)
    with Recorder.open(tmp_path, Manifest()) as run:
        record_while_stopped(run, make_batch, monkeypatch, 33)
        run.step(100, reward(), rollouts=make_batch(100))
    read = read_run(tmp_path)
    # The writer process has the first step after the stop, the queue has the next ones.
    assert [record.step for record in read.steps] == [*range(18), 100]
    assert list(rollout_files(tmp_path)) == [1, 2, 3, 4, 5, 100]
    *_, last = read.steps
    assert last.knobs == {"clip_low": 0.32}  # the change of a step that was given up
    (warning,) = (event for event in read.events if event.kind == "warning")
    assert warning.body["not_recorded"] == {"rollouts": 27, STEPS: 15}
    assert len(caplog.records) == 1
    assert "recording is too slow" in caplog.text


def test_whole_batches_are_dropped_by_their_size(
    tmp_path: Path, make_batch: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = StepBatch(rollouts=make_batch(1))
    size = batch_bytes(StepJob(1, batch, batch.rollouts, {}, 0.0, None))
    assert size == batch_bytes(StepJob(1, batch, None, {}, 0.0, None))  # the same arrays
    monkeypatch.setattr("grpodoctor.runs.recording.recorder.MAX_QUEUED_BYTES", 3 * size)
    with Recorder.open(tmp_path, Manifest(), depth="off") as run:
        run.step(0, reward())
        assert run.flush(10)
        run._writer.process.send_signal(signal.SIGSTOP)
        for step in range(1, 8):
            run.step(step, StepBatch(rollouts=make_batch(step)))
        run.step(8, reward())  # a finished line is always kept
        run._writer.process.send_signal(signal.SIGCONT)
    assert [record.step for record in read_run(tmp_path).steps] == [0, 1, 2, 3, 4, 8]


def test_without_a_thread_the_training_goes_on_unrecorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Recorder.open(tmp_path, Manifest()) as run:
        run.step(0, reward())
        run.event("warning", 0)
    monkeypatch.undo()
    assert run.failure is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "can't start new thread" in caplog.text
    with Recorder.open(tmp_path, Manifest()) as again:  # lock and writer process are released
        again.step(0, reward())
    assert [record.step for record in read_run(tmp_path).steps] == [0]


def test_a_fault_while_closing_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Recorder.open(tmp_path, Manifest())
    run.step(0, reward())

    def fail() -> bool:
        raise MemoryError("no memory")

    monkeypatch.setattr(run, "_drain", fail)
    run.close()
    assert len(caplog.records) == 1
    assert "no memory" in caplog.text


def test_the_first_step_is_written_before_the_second_is_taken(tmp_path: Path) -> None:
    """A writer process that is still starting holds back the first step, and no later one."""
    with Recorder.open(tmp_path, Manifest()) as run:
        for step in range(5):
            run.step(step, reward())
            assert len(list(read_run(tmp_path).steps)) >= step


def test_actions_are_kept_when_many_events_come_at_once(tmp_path: Path) -> None:
    with Recorder.open(tmp_path, Manifest()) as run:
        for number in range(320):
            run.event("applied", number)
    kinds = [event.kind for event in read_run(tmp_path).events]
    assert kinds.count("applied") == 320


def test_a_stuck_writer_delays_one_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpodoctor.runs.recording.recorder.LINES_WAIT_SECONDS", 0.3)
    with Recorder.open(tmp_path, Manifest()) as run:
        run.step(0, reward())
        run.catch_up()
        assert [record.step for record in read_run(tmp_path).steps] == [0]
        assert run._writer is not None
        run._writer.process.send_signal(signal.SIGSTOP)
        run.step(1, reward())
        waits = record_waits(run, monkeypatch)
        run.catch_up()
        run.catch_up()
        run._writer.process.send_signal(signal.SIGCONT)
    assert [timeout for timeout, done in waits if timeout == 0.3 and not done] == [0.3]


def test_rollouts_left_out_by_depth_write_no_files(tmp_path: Path, make_batch: Batches) -> None:
    with Recorder.open(tmp_path, Manifest(), depth="off") as run:
        run.step(0, reward(), rollouts=make_batch(0))
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        EVENTS,
        MANIFEST,
        "scribe.lock",
        STEPS,
        "writer.lock",
    ]


def test_other_ranks_write_only_rollouts(tmp_path: Path, make_batch: Batches) -> None:
    with (
        Recorder.open(tmp_path, Manifest()) as first,
        Recorder.open(tmp_path, Manifest(), rank=1) as second,
    ):
        first.step(0, reward(), rollouts=make_batch(0))
        second.step(0, StepBatch(rollouts=make_batch(0, count=4)))
        second.event("warning", 0)
    read = read_run(tmp_path)
    assert len(list(read.steps)) == 1
    assert [event.kind for event in read.events] == ["started", "finished"]
    assert read.rollouts(0)["rank"].to_pylist() == [0] * 8 + [1] * 4


def _records_on(run: Recorder, batches: Batches, steps: range) -> None:
    for step in steps:
        run.step(step, reward(), rollouts=batches(step))
        run.event("warning", step)


def test_a_measurement_that_fails_ends_recording_once(
    tmp_path: Path, make_batch: Batches, caplog: pytest.LogCaptureFixture
) -> None:
    with Recorder.open(tmp_path, Manifest()) as run:
        _records_on(run, make_batch, range(3))
        run.step(3, StepBatch(rollouts=replace(make_batch(3), texts=[None] * 7 + [3])))
        _records_on(run, make_batch, range(4, 9))
    assert [record.step for record in read_run(tmp_path).steps] == [0, 1, 2]
    assert re.match(r"recording ended at step 3: (Type|Attribute)Error: ", run.failure)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_removed_directory_ends_recording_once(
    tmp_path: Path, make_batch: Batches, caplog: pytest.LogCaptureFixture
) -> None:
    with Recorder.open(tmp_path / "run", Manifest()) as run:
        _records_on(run, make_batch, range(3))
        assert run.flush()
        shutil.rmtree(tmp_path / "run")
        _records_on(run, make_batch, range(3, 9))
    assert run.failure is not None
    assert "removed" in run.failure
    assert len(caplog.records) == 1
    assert not (tmp_path / "run").exists()


def test_a_directory_taken_over_by_another_run_is_not_written_to(
    tmp_path: Path, make_batch: Batches
) -> None:
    with Recorder.open(tmp_path / "run", Manifest()) as old:
        shutil.rmtree(tmp_path / "run")
        with Recorder.open(tmp_path / "run", Manifest()) as new:
            _records_on(old, make_batch, range(100, 103))
            new.step(0, reward())
    assert old.failure is not None
    assert [record.step for record in read_run(tmp_path / "run").steps] == [0]


def test_a_full_device_ends_recording_once(
    tmp_path: Path, make_batch: Batches, caplog: pytest.LogCaptureFixture
) -> None:
    with Recorder.open(tmp_path, Manifest()) as run:
        _records_on(run, make_batch, range(2))
        assert run.flush(60)
        (tmp_path / STEPS).rename(tmp_path / "kept.jsonl")
        (tmp_path / STEPS).symlink_to("/dev/full")
        _records_on(run, make_batch, range(2, 6))
    assert run.failure == "recording ended at step 2: No space left on device"
    assert len(caplog.records) == 1


_LIMITED = """
import logging, resource, sys
from grpodoctor.runs.recording import recorder
from grpodoctor.runs.recording.jobs import StepJob, batch_bytes
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Manifest
from grpodoctor.vocabulary.values import Mean
recorder.LINE_WAIT_SECONDS = 30.0  # for slow machines
sys.path.insert(0, sys.argv[2])
from writer import batch
logging.basicConfig()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), resource.RLIM_INFINITY))
with Recorder.open(sys.argv[1], Manifest(), depth=sys.argv[3]) as run:
    run.event("warning", 0)
    assert run.flush(30)
    for step in range(2000):
        run.step(step, {"reward/mean": Mean.of([1.0])}, rollouts=batch(step))
print("trained to the end;", run.failure)
"""


@pytest.mark.parametrize(("depth", "limit"), [("off", 20_000), ("full", 4_000)])
def test_a_full_quota_ends_recording_once(
    tmp_path: Path, writer_program: Path, depth: str, limit: int
) -> None:
    """The system refuses to let files grow: lines at depth off, Parquet at depth full."""
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path), writer_program.parent, depth, str(limit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "trained to the end; recording ended at step" in done.stdout
    assert "File too large" in done.stdout
    assert done.stderr.count("WARNING") == 1
    read = read_run(tmp_path)
    steps = [record.step for record in read.steps]
    assert steps == list(range(len(steps)))
    assert read.damaged_lines == 0
    assert not list((tmp_path / "rollouts").glob(".*")) if depth == "full" else len(steps) > 50


def test_a_second_writer_is_refused_while_the_first_runs(
    tmp_path: Path, writer_program: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, str(writer_program), "hold", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stdout.readline() == "open\n"
        before = (tmp_path / EVENTS).read_bytes()
        with pytest.raises(RunError, match=f"process {first.pid} on .* is already recording here"):
            Recorder.open(tmp_path, Manifest())
        assert (tmp_path / EVENTS).read_bytes() == before
        first.kill()
        first.wait(10)
        Recorder.open(tmp_path, Manifest()).close()
    with Recorder.open(tmp_path, Manifest()), pytest.raises(RunError, match=str(os.getpid())):
        Recorder.open(tmp_path, Manifest())


def test_a_fork_that_outlives_its_parent_does_not_hold_the_lock(
    tmp_path: Path, writer_program: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", str(writer_program), "orphan", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        child = int(parent.stdout.readline())
        try:
            parent.kill()
            parent.wait(10)
            os.kill(child, 0)
            Recorder.open(tmp_path, Manifest()).close()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_run_is_not_overwritten_but_resumed(tmp_path: Path) -> None:
    with Recorder.open(tmp_path, Manifest(knobs={"temperature": 1.0})) as run:
        for step in range(5):
            run.step(step, reward())
    with pytest.raises(RunError, match="choose another directory, or resume the run"):
        Recorder.open(tmp_path, Manifest())
    begun = read_run(tmp_path).manifest
    knobs = {"temperature": 0.8}
    with Recorder.open(tmp_path, Manifest(model="m", knobs=knobs), resume=True) as run:
        run.step(3, reward(2.0))
        run.step(4, reward(2.0))
    read = read_run(tmp_path)
    assert (read.manifest.run_id, read.manifest.started) == (begun.run_id, begun.started)
    assert read.manifest.knobs == {"temperature": 1.0}
    assert read.manifest.model == "m"
    records = list(read.steps)
    assert [record.step for record in records] == [0, 1, 2, 3, 4, 3, 4]
    assert [record.knobs for record in records[-2:]] == [knobs, {}]
    assert [(event.kind, event.step) for event in read.events] == [
        ("started", 0),
        ("finished", 4),
        ("resumed", 4),
        ("finished", 4),
    ]


def test_a_directory_that_is_not_a_run_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match=r"has other content: thesis\.tex"):
        Recorder.open(tmp_path, Manifest())
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunError, match="not a directory"):
        Recorder.open(tmp_path / "thesis.tex", Manifest())
    with pytest.raises(RunError, match="cannot write here"):
        Recorder.open("/proc/nowhere", Manifest())


def test_an_interrupted_run_is_not_marked_finished(tmp_path: Path) -> None:
    def train() -> None:
        with Recorder.open(tmp_path, Manifest()) as run:
            run.step(0, reward())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()
    read = read_run(tmp_path)
    assert [event.kind for event in read.events] == ["started"]
    assert len(list(read.steps)) == 1


_FORGETFUL = """
import sys
from grpodoctor.runs.recording.jobs import StepJob, batch_bytes
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Manifest
run = Recorder.open(sys.argv[1], Manifest(), depth="off")
run.step(0, {})
run.step(1, {})
"""


def test_a_trainer_that_forgets_to_close_loses_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _FORGETFUL, str(tmp_path)], timeout=60, check=True)
    assert [record.step for record in read_run(tmp_path).steps] == [0, 1]


def test_many_steps_leave_no_files_open(tmp_path: Path, make_batch: Batches) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Recorder.open(tmp_path, Manifest()) as run:
        run.step(0, reward(), rollouts=make_batch(0))
        assert run.flush()
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the kernel's list, not a folder
        _records_on(run, make_batch, range(1, 60))
        assert run.flush()
        assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208 - as above
    assert (soft, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)


def test_a_link_in_place_of_the_rollouts_loses_no_file_behind_it(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".mine.tmp").touch()
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "rollouts").symlink_to(elsewhere)
    with Recorder.open(run_dir, Manifest()) as run:
        run.step(0, reward())
    assert (elsewhere / ".mine.tmp").exists()


def test_a_directory_that_cannot_be_prepared_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("grpodoctor.runs.recording.recorder.prepare_rollouts", refuse)
        with pytest.raises(RunError, match="cannot record here: Permission denied"):
            Recorder.open(tmp_path / "run", Manifest())
    Recorder.open(tmp_path / "run", Manifest(), depth="off").close()


class _RaisingHandler(logging.Handler):
    def emit(self, _: logging.LogRecord) -> None:
        raise LookupError("a broken log handler")


def test_a_log_handler_that_raises_does_not_reach_the_training(tmp_path: Path) -> None:
    logger, handler = logging.getLogger("grpodoctor"), _RaisingHandler()
    logger.addHandler(handler)
    try:
        with Recorder.open(tmp_path / "run", Manifest(), depth="off") as run:
            shutil.rmtree(tmp_path / "run")
            for step in range(3):
                run.step(step, {"reward/mean": Mean.of([1.0])})
    finally:
        logger.removeHandler(handler)
    assert run.failure is not None
    assert run.failure.endswith("the run directory was removed")
