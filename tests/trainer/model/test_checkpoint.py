"""An interrupted and resumed run equals an uninterrupted one."""

from __future__ import annotations

import resource
import signal
import time
from pathlib import Path

import orjson
import pytest
import torch

from grpodoctor.errors import RunError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.records import MANIFEST, STEPS, Event
from grpodoctor.trainer import loop
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import (
    best_checkpoint,
    checkpoints,
    latest,
    saved_config,
    unrecorded_note,
)
from grpodoctor.trainer.request_handler import naming_checkpoint
from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import note_request
from grpodoctor.vocabulary.values import Mean
from tests.forked import forked
from tests.trainer.model.training_state import weights_and_moments

SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=6", "evaluation.prompts=8"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "evaluation.every=2"),
    # A reward for short responses gives a gradient even if no answer is right.
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)
STALE = ("engine.precision=int8", "engine.sync_every=4", "loss.kl_coefficient=0.1")


def small(*assignments: str) -> TrainConfig:
    return load_config(assignments=[*SMALL, *assignments])


def assert_identical(left: Trainer, right: Trainer) -> None:
    for one, other in zip(weights_and_moments(left), weights_and_moments(right), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "extra",
    [pytest.param((), marks=pytest.mark.slow), STALE],
    ids=["fresh-engine", "stale-engine"],
)
def test_resumed_weights_equal_those_of_an_uninterrupted_run(
    extra: tuple[str, ...], tmp_path: Path
) -> None:
    whole = Trainer(small(*extra), tmp_path / "whole")
    whole.run()
    part = Trainer(small(*extra), tmp_path / "part")
    part.run(lambda report: part.stop() if report.step == 3 else None)
    resumed = Trainer(saved_config(tmp_path / "part"), tmp_path / "part", resume=True)
    assert resumed.done == 3
    resumed.run()
    assert_identical(whole, resumed)
    assert max(tensor.abs().max() for tensor in weights_and_moments(resumed)[-3:]) > 0
    run = read_run(tmp_path / "part")
    assert [step.step for step in run.steps] == [1, 2, 3, 4, 5, 6]
    assert "resumed" in [event.kind for event in run.events]


@pytest.mark.slow
def test_a_checkpoint_with_the_old_spelling_of_optimizer_resumes(tmp_path: Path) -> None:
    critic = ("advantage.kind=gae", "optimizer.learning_rate=0.002")
    whole = Trainer(small(*critic), tmp_path / "whole")
    whole.run()
    part = Trainer(small(*critic), tmp_path / "part")
    part.run(lambda report: part.stop() if report.step == 3 else None)
    newest = checkpoints(tmp_path / "part")[-1]
    for name in ("optimizer", "critic-optimizer"):
        old = name.replace("optimizer", "optimiser")
        (newest / f"{name}.safetensors").rename(newest / f"{old}.safetensors")
    state = newest / "state.json"
    state.write_bytes(state.read_bytes().replace(b'"optimizer":{', b'"optimiser":{'))
    config = saved_config(tmp_path / "part")
    assert config.optimizer == part.config.optimizer
    assert config.optimizer.learning_rate == 0.002
    resumed = Trainer(config, tmp_path / "part", resume=True)
    resumed.run()
    assert_identical(whole, resumed)


@pytest.mark.slow
def test_prompts_from_a_file_go_on_where_they_stopped(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    rows = [{"prompt": f"{n}+{n}=", "answer": str(2 * n)} for n in range(40)]
    data.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    extra = (f"task.data={data}", "model.warm_start_steps=0")
    whole = Trainer(small(*extra), tmp_path / "whole")
    whole.run()
    part = Trainer(small(*extra), tmp_path / "part")
    part.run(lambda report: part.stop() if report.step == 3 else None)
    resumed = Trainer(small(*extra), tmp_path / "part", resume=True)
    resumed.run()
    assert_identical(whole, resumed)


def test_a_killed_run_resumes_from_its_newest_checkpoint(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from grpodoctor.trainer.loop import Trainer\n"
        "from grpodoctor.trainer.config.train_config import load_config\n"
        "Trainer(load_config(assignments=sys.argv[2:]), Path(sys.argv[1])).run()"
    )
    settings = [*SMALL, "steps=5000", "checkpoint.every=1", "checkpoint.keep=2"]
    run_dir = tmp_path / "run"
    with forked(program, str(run_dir), *settings, cwd=tmp_path) as process:
        deadline = time.monotonic() + 120
        while len(checkpoints(run_dir)) < 2 and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr
            time.sleep(0.05)
        process.kill()
    newest = int(checkpoints(run_dir)[-1].name.removeprefix("step-"))
    goal = newest + 2
    resumed = Trainer(saved_config(run_dir, [f"steps={goal}"]), run_dir, resume=True)
    assert resumed.done == newest
    resumed.run()
    whole = Trainer(small(f"steps={goal}"), tmp_path / "whole")
    whole.run()
    assert_identical(whole, resumed)


def test_a_record_behind_the_newest_checkpoint_resumes_from_the_one_before(tmp_path: Path) -> None:
    settings = ("steps=4", "checkpoint.every=2", "checkpoint.keep=3")
    Trainer(small(*settings), tmp_path).run()
    assert unrecorded_note(tmp_path) == ""
    steps = tmp_path / STEPS
    lines = steps.read_bytes().splitlines(keepends=True)
    steps.write_bytes(b"".join(lines[:3]))
    assert latest(tmp_path).name == "step-000002"
    assert "resumes at step 2 and repeats the steps after it" in unrecorded_note(tmp_path)
    resumed = Trainer(saved_config(tmp_path), tmp_path, resume=True)
    resumed.run()
    assert [step.step for step in read_run(tmp_path).steps][-2:] == [3, 4]
    steps.write_bytes(b"".join(lines[:2]))
    (tmp_path / "checkpoints" / "step-000003").mkdir()
    assert latest(tmp_path).name == "step-000002", "two checkpoints are ahead of the record"
    (tmp_path / "checkpoints" / "step-000003").rmdir()
    steps.write_bytes(lines[0])
    assert latest(tmp_path).name == "step-000004", "no checkpoint is as old as this record"
    assert unrecorded_note(tmp_path) == "steps 2 to 4 are missing from the record"
    steps.unlink()
    assert unrecorded_note(tmp_path) == "steps 1 to 4 are missing from the record"
    (tmp_path / MANIFEST).unlink()
    assert unrecorded_note(tmp_path) == "", "recording is off"


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for step in (999_999, 1_000_000, 20):
        (tmp_path / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)
    names = [path.name for path in checkpoints(tmp_path)]
    assert names == ["step-000020", "step-999999", "step-1000000"]


def test_old_checkpoints_are_removed_except_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = iter((0.1, 0.5, 0.2, 0.4))
    monkeypatch.setattr(
        loop, "evaluate", lambda *_: {"accuracy/heldout": Mean.of([next(accuracies)])}
    )
    trainer = Trainer(small("checkpoint.every=1", "checkpoint.keep=2"), tmp_path)
    leftover = tmp_path / "checkpoints" / ".step-000009.removed"
    leftover.mkdir(parents=True)  # of a removal that was killed
    stop = Event("treatment-stopped", 1, {"verdict": "Stop the run."})
    assert naming_checkpoint(stop, tmp_path).body["verdict"] == (
        "Stop the run. The run has no checkpoint with a held-out evaluation."
    )
    trainer.run(lambda report: report.step == 5 and Mailbox(tmp_path).send(note_request(stop, "s")))
    names = [path.name for path in checkpoints(tmp_path)]
    assert names == ["step-000002", "step-000005", "step-000006"]
    assert not leftover.exists()
    (advice,) = [each for each in read_run(tmp_path).events if each.kind == stop.kind]
    assert advice.body["verdict"] == (
        "Stop the run. Its best checkpoint is kept: checkpoints/step-000002 (held out 0.5)."
    )
    (tmp_path / "checkpoints/step-000002/state.json").write_bytes(b"{")
    assert best_checkpoint(tmp_path) == (tmp_path / "checkpoints/step-000006", 0.4)


def test_a_checkpoint_is_a_model_that_transformers_loads(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    trainer = Trainer(small("steps=1"), tmp_path / "run")
    trainer.run()
    loaded = AutoModelForCausalLM.from_pretrained(checkpoints(tmp_path / "run")[-1])
    for name, tensor in trainer.policy.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_there_is_nothing_to_resume_in_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no checkpoint"):
        saved_config(tmp_path)
    with pytest.raises(RunError, match="no checkpoint"):
        Trainer(small(), tmp_path, resume=True)


def test_a_damaged_checkpoint_is_one_clear_line(tmp_path: Path) -> None:
    Trainer(small("steps=1"), tmp_path / "run").run()
    newest = checkpoints(tmp_path / "run")[-1]
    (newest / "optimizer.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(RunError, match=r"damaged .*resume from the previous one"):
        Trainer(small(), tmp_path / "run", resume=True)
    for state in (b"{", b"[]", b'{"step": 1, "config": [], "engine": {}, "task": {}}'):
        (newest / "state.json").write_bytes(state)
        with pytest.raises(RunError, match=r"damaged .*resume from the previous one"):
            saved_config(tmp_path / "run")


def test_a_setting_of_another_version_in_a_checkpoint_is_one_clear_line(tmp_path: Path) -> None:
    Trainer(small("steps=1"), tmp_path / "run").run()
    state = checkpoints(tmp_path / "run")[-1] / "state.json"
    state.write_bytes(state.read_bytes().replace(b'"config":{', b'"config":{"gone":1,'))
    with pytest.raises(
        RunError, match=r"unknown setting gone .*step-000001.*the version of grpodoctor"
    ):
        saved_config(tmp_path / "run")


@pytest.mark.parametrize("recorded", ["true", "false"])
def test_a_new_run_does_not_overwrite_an_existing_run(tmp_path: Path, recorded: str) -> None:
    Trainer(small("steps=1"), tmp_path / "run").run()
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="already contains a run"):
        Trainer(small("steps=1", f"record.enabled={recorded}"), tmp_path / "run")
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert after == before


def test_an_unrecorded_run_refuses_a_directory_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match=r"other content: thesis\.tex"):
        Trainer(small("steps=1", "record.enabled=false"), tmp_path)
    with pytest.raises(RunError, match="cannot be read"):
        Trainer(small("steps=1"), tmp_path / ("x" * 300))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_failed_checkpoint_leaves_the_disk_to_the_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = Trainer(small("steps=4", "checkpoint.every=1"), tmp_path / "run")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))
    try:
        trainer.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert trainer.done == 4
    assert not trainer.is_saved
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    assert [each.message for each in caplog.records if "checkpoint" in each.message][1:] == []
    assert "checkpoint cannot be written" in caplog.text
    assert [step.step for step in read_run(tmp_path / "run").steps] == [1, 2, 3, 4]


def test_another_model_does_not_resume(tmp_path: Path) -> None:
    Trainer(small("steps=1"), tmp_path / "run").run()
    with pytest.raises(RunError, match="does not fit this run"):
        Trainer(small("model.width=32"), tmp_path / "run", resume=True)
