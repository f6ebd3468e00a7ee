"""Faults of the instruments and of their surroundings: the training ends as it would without them.

Each fault is planted in a loop with `Doctor`. The weights equal those of the same loop without
instruments, bit for bit, and what was recorded before the fault can be read.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import grpodoctor
from grpodoctor.hooks.ranks.exchange import RankExchange, RankInfo
from grpodoctor.hooks.torch_loop.doctor import Doctor
from grpodoctor.rules.instruments.failed_instrument import FailedInstrument
from grpodoctor.runs.recording.writer_client import WriterProcess
from grpodoctor.runs.records import WRITER_PROCESS_LOCK
from grpodoctor.support.files.locks import Lock
from grpodoctor.vocabulary.values import scalar
from tests.hooks.loop import train
from tests.samples import sampled

STEPS = 8
LOOP = Path(__file__).parent / "loop.py"

Fault = Callable[[Doctor, int], object]


@pytest.fixture(scope="module")
def weights() -> str:
    """Hash of the weights without instruments."""
    return train(None, STEPS)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def recorded_steps(run_dir: Path) -> list[int]:
    return [record.step for record in grpodoctor.open_run(run_dir)]


def written(run_dir: Path, steps: int) -> None:
    """Wait until so many steps are on disk."""
    deadline = time.monotonic() + 60
    file = run_dir / "steps.jsonl"
    while not file.exists() or len(file.read_bytes().splitlines()) < steps:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_without_a_fault_the_weights_are_the_same(tmp_path: Path, weights: str) -> None:
    with Doctor(tmp_path / "run") as doctor:
        assert train(doctor, STEPS) == weights
    assert recorded_steps(tmp_path / "run") == list(range(STEPS))


def test_a_removed_run_directory(
    tmp_path: Path, weights: str, caplog: pytest.LogCaptureFixture
) -> None:
    def remove(step: int) -> None:
        if step == 3:
            written(tmp_path / "run", 3)
            shutil.rmtree(tmp_path / "run")

    with Doctor(tmp_path / "run") as doctor:
        assert train(doctor, STEPS, remove) == weights
        assert doctor.findings == ()
    assert "the run directory was removed" in warnings_in(caplog)[0]
    assert not (tmp_path / "run").exists()


def test_a_killed_writer_process(
    tmp_path: Path, weights: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Doctor(tmp_path / "run") as doctor:

        def kill(step: int) -> None:
            if step == 3:
                written(tmp_path / "run", 3)
                writer = doctor._hook._recorder._writer
                assert isinstance(writer, WriterProcess)
                os.kill(writer.process.pid, signal.SIGKILL)
                writer.process.wait(30)

        assert train(doctor, STEPS, kill) == weights
    (line,) = warnings_in(caplog)
    assert "SIGKILL" in line
    assert recorded_steps(tmp_path / "run")[:3] == [0, 1, 2]


def test_a_full_disk(tmp_path: Path, weights: str) -> None:
    # A file that may not grow fails like a full disk, and needs no file system of its own.
    result = subprocess.run(
        [sys.executable, str(LOOP), str(tmp_path / "run"), str(STEPS), "--largest-file", "12000"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert result.stdout.split()[-1] == weights
    assert len(result.stderr.splitlines()) == 1
    assert "File too large" in result.stderr
    steps = recorded_steps(tmp_path / "run")
    assert steps == list(range(len(steps)))
    assert 0 < len(steps) < STEPS


@pytest.mark.slow
@pytest.mark.parametrize("delay", sampled([0.0, 0.03], {0.03}))
def test_sigterm_during_a_write(tmp_path: Path, delay: float) -> None:
    run_dir = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, str(LOOP), str(run_dir), "100000"], stdout=subprocess.DEVNULL
    ) as process:
        written(run_dir, 4)
        time.sleep(delay)
        process.terminate()
        assert process.wait(60) == -signal.SIGTERM
    Lock.take(run_dir / WRITER_PROCESS_LOCK, 60).release()  # its writer has written the rest
    run = grpodoctor.open_run(run_dir)
    assert [record.step for record in run] == list(range(len(run.records)))


def test_a_rule_that_raises(tmp_path: Path, weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailedInstrument, "examine", lambda *_: 1 / 0)
    with Doctor(tmp_path / "run") as doctor:
        assert train(doctor, STEPS) == weights
        report = doctor.report()
    defects = {defect.code for defect in report.data.report.defects}
    assert defects == {FailedInstrument.code}
    assert report.data.report.run.steps == STEPS


def test_rewards_that_are_not_numbers(tmp_path: Path) -> None:
    def broken(tokens: torch.Tensor) -> torch.Tensor:
        return torch.full((len(tokens),), torch.nan)

    with Doctor(tmp_path / "run") as doctor:
        assert train(doctor, STEPS, rewards_of=broken) == train(None, STEPS, rewards_of=broken)
    records = list(grpodoctor.open_run(tmp_path / "run"))
    assert len(records) == STEPS
    assert scalar(records[0].values["reward/mean"]) is None
    assert records[0].values["reward/mean"].nonfinite == 8


def test_a_reward_that_dies(tmp_path: Path) -> None:
    def dying(step: int) -> None:
        if step == 3:
            raise ConnectionError("the reward model is gone")

    with pytest.raises(ConnectionError), Doctor(tmp_path / "run") as doctor:
        train(doctor, STEPS, dying)
    assert recorded_steps(tmp_path / "run") == [0, 1, 2]


def test_a_clock_that_jumps(tmp_path: Path, weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([2e9, 5.0, 1e9, -1.0] * 1000)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    with Doctor(tmp_path / "run") as doctor:
        assert train(doctor, STEPS) == weights
    assert recorded_steps(tmp_path / "run") == list(range(STEPS))


@pytest.mark.parametrize("content", [b"{", b"\x80\x04.", b'{"id": "1", "kind": "apply"}'])
def test_a_forged_mailbox_file(tmp_path: Path, weights: str, content: bytes) -> None:
    def forge(step: int) -> None:
        if step == 3:
            (tmp_path / "run" / "mailbox").mkdir()
            (tmp_path / "run" / "mailbox" / "0.json").write_bytes(content)
            (tmp_path / "run" / "mailbox" / "1.json").symlink_to("/etc/passwd")

    with Doctor(tmp_path / "run") as doctor:
        assert train(doctor, STEPS, forge) == weights
    refused = [e for e in grpodoctor.open_run(tmp_path / "run").events if "refused" in e.kind]
    assert len(refused) == 2


def test_a_knob_that_cannot_be_read(
    tmp_path: Path, weights: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Doctor(tmp_path / "run") as doctor:
        doctor.knob("learning_rate", lambda: {}["lr"], print)
        assert train(doctor, STEPS) == weights
    (line,) = warnings_in(caplog)
    assert line.startswith("knobs failed")
    assert recorded_steps(tmp_path / "run") == list(range(STEPS))


def test_a_decoder_that_fails(
    tmp_path: Path, weights: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Doctor(tmp_path / "run", decode=lambda _: 1 / 0) as doctor:
        assert train(doctor, STEPS) == weights
    assert recorded_steps(tmp_path / "run") == list(range(STEPS))


def test_a_store_that_is_gone(
    tmp_path: Path, weights: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class LostStore:
        def __getattr__(self, name: str) -> Callable[..., object]:
            def fail(*_: object) -> None:
                raise RuntimeError("Broken pipe")

            return fail

    exchange = RankExchange(LostStore(), RankInfo(0, 2))
    monkeypatch.setattr(RankExchange, "connect", lambda: exchange)
    with Doctor(tmp_path / "run") as doctor:
        assert train(doctor, STEPS) == weights
    (line,) = warnings_in(caplog)
    assert "Broken pipe" in line
    assert recorded_steps(tmp_path / "run") == list(range(STEPS))
