"""A training that treats itself, through an observer process."""

import os
import subprocess
import time
from pathlib import Path

import pytest

import grpodoctor
from grpodoctor.hooks.observer import Observer, observe
from grpodoctor.hooks.torch_loop.doctor import Doctor
from grpodoctor.monitor.session import Session
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import Manifest

LONGEST = 120.0
FALL = 40
"""Steps until entropy has collapsed."""


def test_a_collapse_is_treated_while_the_loop_runs(tmp_path: Path) -> None:
    clip = [0.2]
    doctor = Doctor(tmp_path / "run", apply="safe")
    doctor.knob("clip_high", lambda: clip[0], lambda value: clip.__setitem__(0, value))
    doctor.knob("clip_low", lambda: 0.2)
    doctor.knob("updates_per_batch", lambda: 2)
    doctor.knob("loss", lambda: "ppo_clip")
    deadline, number = time.monotonic() + LONGEST, 0
    with doctor:
        while clip[0] == 0.2 and time.monotonic() < deadline:
            with doctor.step(number) as step:
                step.reading("entropy/mean", max(0.02, 1.0 - number / FALL))
                step.reading("reward/mean", 0.3 + 0.001 * (number % 3))
                step.reading("clip/high_rate", 0.1)
            number += 1
            time.sleep(0 if number < FALL else 0.05)
    events = grpodoctor.open_run(tmp_path / "run").events
    assert clip[0] > 0.2
    (applied,) = (event for event in events if event.kind == "treatment-applied")
    assert applied.body["before"] == {"clip_high": 0.2}
    assert {"treatment-proposed", "finding-raised"} <= {event.kind for event in events}


def test_an_observer_ends_with_the_run(tmp_path: Path) -> None:
    with Recorder.open(tmp_path / "run", Manifest(), depth="off"):
        pass
    observe(Session(tmp_path / "run"), os.getppid(), poll_seconds=0.01)  # returns


def test_an_observer_ends_with_the_training(tmp_path: Path) -> None:
    observe(Session(tmp_path / "run"), parent=-1)  # returns


def test_a_hanging_observer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer(tmp_path / "run", "safe")
    monkeypatch.setattr("grpodoctor.hooks.observer._EXIT_SECONDS", 0.01)
    observer.stop()
    assert observer._process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(observer._process.pid, 0)


def test_the_package_starts_no_observer_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    original = subprocess.Popen.__init__

    def note(self: object, args: list[str], *rest: object, **options: object) -> None:
        started.append(args)
        original(self, args, *rest, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", note)
    with Doctor(tmp_path / "run") as doctor, doctor.step() as step:
        step.reading("reward/mean", 1)
    assert not [args for args in started if "grpodoctor.hooks.observer" in args]


def test_an_observer_that_dies_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Doctor(tmp_path / "run", apply="safe") as doctor:
        for number in range(4):
            with doctor.step(number) as step:
                step.reading("reward/mean", 1)
            if number == 1:
                doctor._hook._observer._process.kill()
                doctor._hook._observer._process.wait(30)
    lines = [each.getMessage() for each in caplog.records if "observer" in each.getMessage()]
    assert lines == [
        "observer failed and is off from now on: the observer process ended (exit code -9); the "
        "training continues"
    ]
