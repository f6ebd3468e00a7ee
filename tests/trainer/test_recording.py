"""Recording: correct records, and no change of the training."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from grpodoctor.errors import DataError, RunError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.runs.records import WRITER_LOCK
from grpodoctor.runs.rollouts import read_rollouts
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.loop import Trainer
from grpodoctor.treatment.mailbox import Mailbox, Request
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import scalar

SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=3", "evaluation.prompts=8"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "evaluation.every=3"),
    # A reward for short responses gives a gradient even if no answer is right.
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)


def small(*assignments: str) -> TrainConfig:
    return load_config(assignments=[*SMALL, *assignments])


def trained(config: TrainConfig, run_dir: Path) -> Trainer:
    trainer = Trainer(config, run_dir)
    trainer.run()
    return trainer


def assert_same_weights(left: Trainer, right: Trainer) -> None:
    expected = right.policy.model.state_dict()
    for name, tensor in left.policy.model.state_dict().items():
        assert torch.equal(tensor, expected[name])


def test_recording_changes_no_weight(tmp_path: Path) -> None:
    silent = trained(small("record.enabled=false"), tmp_path / "silent")
    names = sorted(path.name for path in (tmp_path / "silent").iterdir())
    assert names == ["checkpoints", WRITER_LOCK]
    for depth in ("off", "full"):
        recorded = trained(small(f"record.depth={depth}"), tmp_path / depth)
        assert_same_weights(silent, recorded)


@pytest.mark.slow
def test_a_mailbox_with_notes_changes_no_weight(tmp_path: Path) -> None:
    alone = trained(small(), tmp_path / "alone")
    watched = Trainer(small(), tmp_path / "watched")
    mailbox = Mailbox(tmp_path / "watched")
    for number in range(3):
        event = {"kind": "treatment-proposed", "step": 0}
        mailbox.send(Request(f"n{number}", "note", event=event))
    watched.run()
    assert_same_weights(alone, watched)
    kinds = [event.kind for event in read_run(tmp_path / "watched").events]
    assert kinds.count("treatment-proposed") == 3


def test_all_that_is_recorded_is_in_the_vocabulary_and_in_its_range(tmp_path: Path) -> None:
    settings = ("loss.kl_coefficient=0.04", "evaluation.samples=4", "engine.precision=int8")
    run = read_run(trained(small(*settings, "correction.kind=tis_token"), tmp_path / "r").run_dir)
    steps = list(run.steps)
    assert [step.step for step in steps] == [1, 2, 3]
    for name, reading in steps[-1].values.items():
        metric, value = metric_of(name), scalar(reading)
        assert metric is not None, name
        assert value is None or metric.low <= value <= metric.high, name
    expected = {
        *("reward/mean", "accuracy/train", "accuracy/heldout", "reward/heldout", "pass_at_k/4"),
        *("entropy/mean", "length/mean", "groups/effective_rate", "groups/generated_per_kept"),
        *("clip/low_rate", "ratio/max", "mismatch/first_ratio_off", "updates_per_batch"),
        *("kl/reference/k3", "kl/old_policy/k3", "mismatch/prob_diff_max", "mismatch/nll_gap"),
        *("correction/weight_mean", "advantage/abs_max", "optimizer/loss", "optimizer/grad_norm"),
        *("optimizer/update_norm_ratio", "optimizer/changed_weight_rate", "staleness/mean"),
        *("optimizer/skipped_rate", "time/step", "time/rollout", "time/learn", "time/record"),
    }
    assert expected <= set(steps[-1].values)
    assert "accuracy/heldout" not in steps[1].values


def test_the_manifest_says_what_was_run(tmp_path: Path) -> None:
    config = small("seed=11", "loss.clip_high=0.28")
    manifest = read_run(trained(config, tmp_path / "run").run_dir).manifest
    assert manifest.framework == "grpodoctor"
    assert manifest.seed == 11
    assert manifest.knobs["clip_high"] == 0.28
    assert TrainConfig.model_validate(manifest.config) == config
    assert manifest.versions["torch"] == torch.__version__


def test_rollouts_are_on_disk_with_their_sampler_logprobs(tmp_path: Path) -> None:
    trainer = trained(small("record.depth=full"), tmp_path / "run")
    table = read_rollouts(tmp_path / "run", 2)
    assert len(table) == 16
    row = table.to_pylist()[0]
    assert row["prompt"]
    assert len(row["sampler_logprobs"]) == row["length"]
    prompt = trainer.policy.tokenizer.encode(row["prompt"])
    assert row["sequence_token_ids"] == [*prompt, *row["token_ids"]]
    assert row["sequence_sampled"] == [0] * len(prompt) + [1] * row["length"]


def test_a_directory_that_disappears_ends_the_recording_and_not_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_dir = tmp_path / "run"
    trainer = Trainer(small("checkpoint.every=0"), run_dir)
    trainer.run(lambda report: shutil.rmtree(run_dir) if report.step == 1 else None)
    assert trainer.done == 3
    assert_same_weights(trainer, trained(small(), tmp_path / "other"))


def test_two_trainers_do_not_share_a_directory(tmp_path: Path) -> None:
    first = Trainer(small(), tmp_path / "run")
    with pytest.raises(RunError):
        Trainer(small(), tmp_path / "run")
    first.run()
    with pytest.raises(RunError):
        Trainer(small(), tmp_path / "run")


@pytest.mark.slow
def test_a_run_that_fails_says_why_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_reward.py").write_text(
        "calls = 0\n"
        "def reward(prompts, completions, answers):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls > 2: raise RuntimeError('no more')\n"
        "    return [float(i % 2) for i in range(len(prompts))]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = small("task.reward=failing_reward:reward", "evaluation.every=0")
    with pytest.raises(DataError, match="no more"):
        trained(config, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert [step.step for step in run.steps] == [1, 2]
    last = list(run.events)[-1]
    assert last.kind == "warning"
    assert "no more" in last.body["message"]
    (tmp_path / "failing_reward.py").write_text(
        "def reward(prompts, completions, answers):\n"
        "    return [float(i % 2) for i in range(len(prompts))]\n"
    )
    resumed = Trainer(config, tmp_path / "run", resume=True)
    resumed.run()
    assert_same_weights(resumed, trained(config, tmp_path / "whole"))


def test_recording_costs_the_training_thread_little(tmp_path: Path) -> None:
    """A coarse guard against large mistakes; `make bench` prints the figure."""
    config = load_config(
        assignments=["threads=1", "model.warm_start_steps=30", "steps=6", "evaluation.every=0"]
    )
    trained(config, tmp_path / "run")
    steps = list(read_run(tmp_path / "run").steps)
    costs = (scalar(step.values["time/record"]) for step in steps[1:])
    cost = sorted(cost or 0 for cost in costs)[len(steps) // 2]
    whole = sorted(scalar(step.values["time/step"]) or 0 for step in steps)[len(steps) // 2]
    assert cost < 0.1 * whole
