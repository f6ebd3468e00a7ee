"""Faults planted in a real training with TRL: it ends as it would without grpodoctor."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import grpodoctor
from grpodoctor.runs.records import WRITER_PROCESS_LOCK
from grpodoctor.support.files.locks import Lock
from tests.hooks.trl.faults import (
    FAULTS,
    OTHERS,
    PLANTED,
    STEPS,
    Fault,
    flood_mailbox,
    forge_requests,
)
from tests.hooks.trl.trained_weights import weights
from tests.samples import sampled

pytestmark = pytest.mark.filterwarnings("ignore")

MakeTrainer = Callable[..., Any]
DOCS = Path(__file__).parents[3] / "docs" / "hooks.md"
_plain_weights: list[np.ndarray] = []


def weights_without_us(make_trainer: MakeTrainer, fault: Fault, patch: pytest.MonkeyPatch) -> Any:
    """Trained with the same settings and texts; computed once for all faults that change none."""
    if fault.changes_texts or fault.settings:
        trainer = make_trainer("bare", max_steps=STEPS, **fault.settings)
        if fault.changes_texts and fault.prepare is not None:
            fault.prepare(trainer, patch)
        trainer.train()
        return weights(trainer)
    if not _plain_weights:
        trainer = make_trainer("bare", max_steps=STEPS)
        trainer.train()
        _plain_weights.append(weights(trainer))
    return _plain_weights[0]


@pytest.mark.parametrize("name", sampled(FAULTS, 8))
def test_the_training_ends_as_without_us(
    make_trainer: MakeTrainer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    from transformers import TrainerCallback

    fault = FAULTS[name]
    expected = weights_without_us(make_trainer, fault, monkeypatch)
    trainer = make_trainer("observed", max_steps=STEPS, **fault.settings)
    if fault.prepare is not None:
        fault.prepare(trainer, monkeypatch)
    attachment = grpodoctor.attach(trainer, **fault.options)

    class Plant(TrainerCallback):
        def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            if fault.plant is not None and state.global_step == PLANTED:
                fault.plant(trainer, attachment, monkeypatch)

    trainer.add_callback(Plant())
    trainer.train()
    assert trainer.state.global_step == STEPS
    assert np.array_equal(expected, weights(trainer))
    lines = [
        each.getMessage()
        for each in caplog.records
        if each.name == "grpodoctor" and each.levelno >= logging.WARNING
    ]
    assert len(lines) == bool(fault.says), lines
    assert not fault.says or fault.says in lines[0]
    monkeypatch.undo()
    if fault.recorded:
        steps = [record.step for record in grpodoctor.open_run(attachment.run_dir)]
        assert steps == list(range(1, len(steps) + 1))
        assert fault.recorded <= len(steps) <= STEPS
    if fault.plant in (forge_requests, flood_mailbox):
        kinds = {event.kind for event in grpodoctor.open_run(attachment.run_dir).events}
        assert "treatment-refused" in kinds
        assert "treatment-applied" not in kinds


def test_a_rule_that_raises_is_a_defect(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(max_steps=2)
    FAULTS["rule"].prepare(trainer, monkeypatch)
    attachment = grpodoctor.attach(trainer)
    trainer.train()
    data = attachment.report().data.report
    assert {defect.code for defect in data.defects} == {"INS003"}
    assert data.run.steps == 2


@pytest.mark.slow
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

    bare = make_trainer("bare", reward=broken)
    bare.train()
    trainer = make_trainer(reward=broken)
    attachment = grpodoctor.attach(trainer)
    trainer.train()
    assert np.array_equal(weights(bare), weights(trainer), equal_nan=True)
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
    (line,) = [each.getMessage() for each in caplog.records if each.name == "grpodoctor"]
    assert "Changed differs from GRPOTrainer in _calculate_rewards" in line
    assert len(grpodoctor.open_run(Path(attachment.run_dir)).records) == 4


SCRIPT = dedent("""
    import os
    import sys
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer
    import grpodoctor

    model, output = sys.argv[1:]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [text.count("7") / 8 for text in completions],
        args=GRPOConfig(
            output, max_steps=10_000, per_device_train_batch_size=8, num_generations=4,
            max_completion_length=8, use_cpu=True, bf16=False, gradient_checkpointing=False,
            disable_tqdm=True, save_strategy="no", report_to="none",
            ddp_backend="gloo" if "RANK" in os.environ else None,
        ),
        train_dataset=Dataset.from_dict({"prompt": [f"{n}+{n}=" for n in range(10, 42)]}),
    )
    grpodoctor.attach(trainer)
    trainer.train()
    """)


@contextmanager
def training(model: Path, folder: Path, ranks: int = 1) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The script above on each rank, once four steps are recorded."""
    script = folder / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    common = os.environ | {"HF_HUB_OFFLINE": "1"}
    if ranks > 1:
        common |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29547", "WORLD_SIZE": str(ranks)}
    processes = []
    try:
        for rank in range(ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {}
            processes.append(
                subprocess.Popen(
                    [sys.executable, str(script), str(model), str(folder)],
                    env=common | own,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )
            )  # fmt: skip
        steps, deadline = folder / "grpodoctor" / "steps.jsonl", time.monotonic() + 200
        while not steps.exists() or steps.read_bytes().count(b"\n") < 4:
            assert time.monotonic() < deadline
            assert processes[0].poll() is None
            time.sleep(0.02)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait(30)


def readable_steps(folder: Path) -> list[int]:
    """The steps, when the writer process has written what it had."""
    Lock.take(folder / "grpodoctor" / WRITER_PROCESS_LOCK, 60).release()
    return [record.step for record in grpodoctor.open_run(folder / "grpodoctor")]


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_training_that_is_ended_can_be_read(
    model_folder: Path, tmp_path: Path, sign: signal.Signals
) -> None:
    with training(model_folder, tmp_path) as (process,):
        process.send_signal(sign)
        assert process.wait(60) == -sign
    steps = readable_steps(tmp_path)
    assert len(steps) >= 4
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.slow
def test_a_killed_rank_ends_the_training_as_ever(model_folder: Path, tmp_path: Path) -> None:
    with training(model_folder, tmp_path, ranks=2) as (first, second):
        second.kill()
        assert first.wait(120) > 0
    steps = readable_steps(tmp_path)
    assert len(steps) >= 4
    assert steps == list(range(1, len(steps) + 1))


def test_the_documentation_lists_the_faults() -> None:
    section = DOCS.read_text(encoding="utf-8").partition("| fault | what happens |")[2]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", section.partition("\n\n")[0], re.MULTILINE)
    planted = {fault.title: fault.outcome for fault in FAULTS.values()}
    assert dict(rows) == planted | OTHERS
    assert len(rows) == len(planted) + len(OTHERS)
    assert len(planted) >= 20
