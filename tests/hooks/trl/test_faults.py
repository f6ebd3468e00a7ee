"""Faults planted in a real training with TRL: it ends as it would without grpodoctor."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import grpodoctor
from grpodoctor.hooks.trl import private_names

pytestmark = pytest.mark.filterwarnings("ignore")

MakeTrainer = Callable[..., Any]
STEPS = 5


def weights(trainer: Any) -> np.ndarray:
    return np.concatenate([each.detach().numpy().ravel() for each in trainer.model.parameters()])


def break_tap(_trainer: Any, _attachment: Any) -> None:
    """As a version would that names something otherwise."""
    private_names.end_ids = lambda _: frozenset([undefined])  # noqa: F821 - on purpose


def remove_directory(_trainer: Any, attachment: Any) -> None:
    shutil.rmtree(attachment.run_dir, ignore_errors=True)


def kill_writer(_trainer: Any, attachment: Any) -> None:
    deadline, steps = time.monotonic() + 60, attachment.run_dir / "steps.jsonl"
    while steps.read_bytes().count(b"\n") < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    writer = attachment._hook._recorder._writer
    os.kill(writer.process.pid, signal.SIGKILL)


def forge_requests(_trainer: Any, attachment: Any) -> None:
    mailbox = attachment.run_dir / "mailbox"
    mailbox.mkdir(exist_ok=True)
    (mailbox / "0000000001.json").write_bytes(b'{"kind":"apply","changes":{"learning_rate":1}')
    (mailbox / "0000000002.json").write_bytes(b"\xff" * 100)


def turn_clock_back(_trainer: Any, _attachment: Any) -> None:
    earlier = time.time() - 1e6
    time.time = lambda: earlier


def break_knob(_trainer: Any, attachment: Any) -> None:
    attachment._hook.knobs.read_only("group_size", lambda: 1 / 0)


FAULTS: dict[str, tuple[Callable[[Any, Any], None], int]] = {
    "tap": (break_tap, STEPS),
    "directory": (remove_directory, 0),
    "writer": (kill_writer, 2),
    "mailbox": (forge_requests, STEPS),
    "clock": (turn_clock_back, STEPS),
    "knob": (break_knob, STEPS),
}
"""The fault, planted after the second step, and the steps that are recorded at least."""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_training_ends_as_without_the_fault(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    from transformers import TrainerCallback

    monkeypatch.setattr(time, "time", time.time)  # restored afterwards, like the next
    monkeypatch.setattr(private_names, "end_ids", private_names.end_ids)
    plant, least = FAULTS[fault]
    bare = make_trainer("bare", max_steps=STEPS)
    bare.train()
    trainer = make_trainer("observed", max_steps=STEPS)
    attachment = grpodoctor.attach(trainer)

    class Plant(TrainerCallback):
        def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step == 2:
                plant(trainer, attachment)

    trainer.add_callback(Plant())
    trainer.train()
    assert trainer.state.global_step == STEPS
    assert np.array_equal(weights(bare), weights(trainer))
    if least:
        run = grpodoctor.open_run(attachment.run_dir)
        assert [record.step for record in run][:least] == list(range(1, least + 1))


def test_an_exception_of_the_reward_passes_unchanged(make_trainer: MakeTrainer) -> None:
    calls = iter(range(100))

    def broken(completions: list[str], **_: Any) -> list[float]:
        if next(calls) == 2:
            raise ZeroDivisionError("in the user's own code")
        return [float(len(text)) for text in completions]

    trainer = make_trainer(reward=broken)
    attachment = grpodoctor.attach(trainer)
    with pytest.raises(ZeroDivisionError, match="the user's own code"):
        trainer.train()
    attachment.close()
    run = grpodoctor.open_run(attachment.run_dir)
    assert [record.step for record in run] == [1, 2]


def test_rewards_that_are_not_numbers_are_named(make_trainer: MakeTrainer) -> None:
    def broken(completions: list[str], **_: Any) -> list[float]:
        return [float("nan")] * len(completions)

    trainer = make_trainer(reward=broken)
    attachment = grpodoctor.attach(trainer)
    trainer.train()
    assert "OPT003" in {finding.code for finding in grpodoctor.check(attachment.run_dir).findings}


def test_a_method_with_another_signature_is_not_observed(
    make_trainer: MakeTrainer, caplog: pytest.LogCaptureFixture
) -> None:
    from trl import GRPOTrainer

    class Changed(GRPOTrainer):
        def _calculate_rewards(self, batch: Any, *others: Any) -> Any:
            return super()._calculate_rewards(batch, *others)

    trainer = make_trainer(kind=Changed)
    attachment = grpodoctor.attach(trainer)
    trainer.train()
    assert "Changed differs from GRPOTrainer in _calculate_rewards" in caplog.text
    assert len(grpodoctor.open_run(Path(attachment.run_dir)).records) == 4
