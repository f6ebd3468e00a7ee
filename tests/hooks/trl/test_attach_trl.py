"""`grpodoctor.attach` in real trainings with TRL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import grpodoctor
from grpodoctor.hooks.guard import Guard
from grpodoctor.hooks.trl import private_names
from grpodoctor.hooks.trl.reward_calls import RewardCalls
from grpodoctor.measure.step import rollout_readings
from grpodoctor.vocabulary.values import scalar
from tests.hooks.trl.conftest import share_of_sevens
from tests.samples import sampled

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL and its dependencies have their own

MakeTrainer = Callable[..., Any]


def weights(trainer: Any) -> dict[str, np.ndarray]:
    return {name: each.detach().numpy().copy() for name, each in trainer.model.named_parameters()}


def train(trainer: Any) -> list[dict[str, Any]]:
    trainer.train()
    return [row for row in trainer.state.log_history if "loss" in row]


def recorded(attachment: Any) -> list[dict[str, Any]]:
    run = grpodoctor.open_run(attachment.run_dir)
    return [
        {"step": record.step, **{k: scalar(v) for k, v in record.values.items()}} for record in run
    ]


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulation": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
    "iterations": {"num_iterations": 2, "beta": 0.05},
    "steps": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
              "steps_per_generation": 4, "loss_type": "grpo"},
}  # fmt: skip


@pytest.mark.parametrize("variant", sampled(VARIANTS, {"steps"}))
def test_weights_are_the_same_to_the_bit(make_trainer: MakeTrainer, variant: str) -> None:
    settings = {"max_steps": 20, **VARIANTS[variant]}
    bare = make_trainer("bare", **settings)
    train(bare)
    observed = make_trainer("observed", **settings)
    attachment = grpodoctor.attach(observed)
    train(observed)
    assert attachment.active
    before, after = weights(bare), weights(observed)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert not np.array_equal(
        before["lm_head.weight"], weights(make_trainer("c"))["lm_head.weight"]
    )
    assert attachment.missing == {}
    records = recorded(attachment)
    generations = 20 // (2 if variant in {"iterations", "steps"} else 1)
    assert len(records) == generations
    assert {record["instruments/failed_parts"] for record in records} == {0}


def test_readings_agree_with_the_log(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(max_steps=6, learning_rate=3e-2, **VARIANTS["iterations"])
    attachment = grpodoctor.attach(trainer)
    rows = train(trainer)
    records = recorded(attachment)
    assert [record["step"] for record in records] == [2, 4, 6]
    for record, first, second in zip(records, rows[::2], rows[1::2], strict=True):
        assert record["reward/mean"] == pytest.approx(first["reward"])
        assert record["length/mean"] == pytest.approx(first["completions/mean_length"])
        assert record["length/truncated_rate"] == pytest.approx(first["completions/clipped_ratio"])
        assert record["groups/zero_variance_rate"] == pytest.approx(first["frac_reward_zero_std"])
        assert record["entropy/mean"] == pytest.approx(first["entropy"], rel=1e-4)
        for key, metric in (
            ("kl", "kl/reference/k3"),
            ("loss", "optimizer/loss"),
            ("grad_norm", "optimizer/grad_norm"),
            ("learning_rate", "optimizer/learning_rate"),
            ("clip_ratio/low_mean", "clip/low_rate"),
            ("clip_ratio/high_mean", "clip/high_rate"),
        ):
            if key == "kl":  # TRL multiplies it by the ratio
                continue
            both = (first[key] + second[key]) / 2
            assert record[metric] == pytest.approx(both, rel=1e-3, abs=1e-4), metric
        assert record["updates_per_batch"] == 2
    assert any(record["clip/high_rate"] > 0 for record in records)
    assert all(record["kl/reference/k3"] > 0 for record in records[1:])


def test_a_log_in_the_middle_of_a_step_loses_no_time(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(max_steps=6, num_iterations=3, logging_steps=2)
    attachment = grpodoctor.attach(trainer)
    train(trainer)
    for record in recorded(attachment):
        assert record["time/step"] > record["time/rollout"]


def test_the_run_is_diagnosed_while_it_trains(make_trainer: MakeTrainer) -> None:
    def constant(completions: list[str], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    trainer = make_trainer(max_steps=16, reward=constant)
    attachment = grpodoctor.attach(trainer)
    seen: list[str] = []

    from transformers import TrainerCallback

    class Look(TrainerCallback):
        def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step == 14:
                seen.extend(finding.name for finding in attachment.findings)

    trainer.add_callback(Look())
    train(trainer)
    assert "zero-reward-std" in seen
    assert grpodoctor.check(attachment.run_dir).findings


def test_messages_are_one_line(make_trainer: MakeTrainer, caplog: pytest.LogCaptureFixture) -> None:
    from transformers import TrainerCallback

    late: list[Any] = []

    class Late(TrainerCallback):
        def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step == 1:
                late.append(grpodoctor.attach(trainer))

    trainer = make_trainer(max_steps=2, callbacks=[Late()])
    train(trainer)
    assert not late[0].active
    assert [record.getMessage() for record in caplog.records if record.name == "grpodoctor"] == [
        "cannot attach to GRPOTrainer: the training has begun; attach before trainer.train(); "
        "the training runs without grpodoctor"
    ]
    other = make_trainer("other")
    assert grpodoctor.attach(other) is grpodoctor.attach(other)
    assert caplog.records[-1].getMessage().startswith("grpodoctor is already attached")


@pytest.mark.slow
def test_an_unknown_version_is_recorded_from_what_trl_documents(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def length(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        return [None if len(ids) == 8 else len(ids) / 8 for ids in completion_ids]

    functions = [share_of_sevens, length]
    settings: dict[str, Any] = {"reward": functions, "reward_weights": [1.0, 0.5]}
    bare = make_trainer("bare", **settings)
    train(bare)
    monkeypatch.setattr("grpodoctor.hooks.trl.private_names.installed_version", lambda: "1.99.0")
    trainer = make_trainer("observed", **settings)
    before = {name: each for name, each in vars(trainer).items() if name != "reward_funcs"}
    attachment = grpodoctor.attach(trainer)
    assert {name: vars(trainer)[name] for name in before} == before  # no method was replaced
    assert functions == [share_of_sevens, length]
    rows = train(trainer)
    assert all(np.array_equal(weights(bare)[name], each) for name, each in weights(trainer).items())
    (line,) = [each.getMessage() for each in caplog.records if each.name == "grpodoctor"]
    assert "1.99.0 is not among the verified versions" in line
    assert len(attachment.missing) == 2
    records = recorded(attachment)
    assert [record["reward/mean"] for record in records] == [row["reward"] for row in rows]
    assert [record["step"] for record in records] == [1, 2, 3, 4]
    for record, row in zip(records, rows, strict=True):
        component = record["reward/component/share_of_sevens/mean"]
        assert component == pytest.approx(row["rewards/share_of_sevens/mean"])
        assert 0 < record["text/unique_ngram_rate"] <= 1
        assert record["length/p95"] <= 8
        assert "entropy/p10" not in record  # of single tokens
        assert record["instruments/failed_parts"] == 0


def test_rewards_that_are_not_plain_functions_are_named(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waiting(completions: list[str], **_: Any) -> list[float]:
        return share_of_sevens(completions)

    monkeypatch.setattr("grpodoctor.hooks.trl.private_names.installed_version", lambda: "1.99.0")
    trainer = make_trainer(reward=waiting)
    attachment = grpodoctor.attach(trainer)
    train(trainer)
    assert (
        "waiting is a model or an asynchronous function; log_completions=True records the texts"
        in attachment.missing.values()
    )
    assert len(recorded(attachment)) == 4


@pytest.mark.parametrize("attaches", sampled([True, False], {True}))
def test_responses_are_read_from_completion_files(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, attaches: bool
) -> None:
    async def waiting(completions: list[str], **_: Any) -> list[float]:
        return share_of_sevens(completions)

    monkeypatch.setattr("grpodoctor.hooks.trl.private_names.installed_version", lambda: "1.99.0")
    callbacks = None if attaches else [grpodoctor.Callback()]
    settings = {"log_completions": True, "num_completions_to_print": 0, "max_steps": 6}
    settings |= {"eval_strategy": "steps", "eval_steps": 4, "per_device_eval_batch_size": 16}
    trainer = make_trainer(
        reward=waiting, callbacks=callbacks, evaluates=True, num_iterations=2, **settings
    )
    if attaches:
        missing = grpodoctor.attach(trainer).missing
        assert missing["tokens and lengths of single responses"].startswith("waiting is a model")
    rows = train(trainer)
    folder = Path(trainer.args.output_dir)
    records = grpodoctor.open_run(folder / "grpodoctor").records
    assert [record.step for record in records] == [1, 2, 3, 4, 5, 6]
    for record, row in zip(records, rows, strict=True):
        # Every second step trains on the generation of the previous one, whose file is the same.
        assert ("text/compression_ratio" in record.values) == (record.step % 2 == 1)
        if record.step % 2:
            assert scalar(record.values["reward/mean"]) == row["reward"]
            file = folder / "completions" / f"completions_{record.step:05d}.parquet"
            advantages = pq.read_table(file)["advantage"].to_pylist()
            largest = scalar(record.values["advantage/abs_max"])
            assert largest == pytest.approx(max(map(abs, advantages)))


def test_a_callback_records_the_log(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(callbacks=[grpodoctor.Callback()])
    rows = train(trainer)
    run = grpodoctor.open_run(f"{trainer.args.output_dir}/grpodoctor")
    assert [scalar(each.values["entropy/mean"]) for each in run] == [row["entropy"] for row in rows]


@pytest.mark.slow
def test_a_trainer_that_trains_twice_has_two_runs(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(max_steps=2)
    attachment = grpodoctor.attach(trainer)
    folders = []
    for _ in range(2):
        train(trainer)
        folders.append(attachment.run_dir)
        assert attachment.report().data.report.run.steps == 2
    assert [folder.name for folder in folders] == ["grpodoctor", "grpodoctor-2"]
    first, second = map(grpodoctor.open_run, folders)
    assert second.manifest.knobs == first.manifest.knobs
    assert second.manifest.knobs["learning_rate"] == 1e-2
    assert [record.step for record in second] == [1, 2]


def test_a_failing_tap_changes_nothing(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bare = make_trainer("bare")
    train(bare)
    monkeypatch.setattr("grpodoctor.hooks.trl.tap_listener.step_batch", lambda *_: 1 / 0)
    trainer = make_trainer("observed")
    attachment = grpodoctor.attach(trainer)
    rows = train(trainer)
    before, after = weights(bare), weights(trainer)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert caplog.text.count("tokens failed and is off from now on") == 1
    records = recorded(attachment)
    assert [record["reward/mean"] for record in records] == [row["reward"] for row in rows]
    assert records[-1]["instruments/failed_parts"] == 1


def test_responses_that_no_function_scored_are_left_out(make_trainer: MakeTrainer) -> None:
    def some(completions: list[str], **_: Any) -> list[float | None]:
        return [None if number % 4 == 0 else float(number) for number in range(len(completions))]

    def others(completions: list[str], **_: Any) -> list[float | None]:
        return [None for _ in completions]

    trainer = make_trainer(reward=[some, others], max_steps=2)
    attachment = grpodoctor.attach(trainer)
    rows = train(trainer)
    for record, row in zip(recorded(attachment), rows, strict=True):
        assert record["reward/mean"] == pytest.approx(row["reward"])
        assert record["reward/component/some/mean"] == pytest.approx(row["rewards/some/mean"])
        assert "reward/component/others/mean" not in record
    findings = grpodoctor.check(attachment.run_dir).findings
    assert [each.summary for each in findings if each.code == "OPT003"] == []


@pytest.mark.parametrize("has_taps", [True, False])
def test_repeated_prompts_are_measured_live(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, has_taps: bool
) -> None:
    """A data set whose prompts are all the same, and one with different ones."""
    if not has_taps:
        monkeypatch.setattr(private_names, "is_verified", lambda _: False)
    named = {}
    for name in ("different", "same"):
        trainer = make_trainer(name, max_steps=7)
        if name == "same":
            constant = {"prompt": "12+13="}
            trainer.train_dataset = trainer.train_dataset.map(lambda _: constant)  # noqa: B023
        attachment = grpodoctor.attach(trainer)
        trainer.train()
        rates = {record["groups/repeated_prompt_rate"] for record in recorded(attachment)}
        assert rates == {0.0 if name == "different" else 0.75}
        report = grpodoctor.check(attachment.run_dir)
        named[name] = [(each.code, each.severity) for each in report.findings]
    assert ("DAT007", "warning") in named["same"]
    assert not [code for code, _ in named["different"] if code == "DAT007"]


@pytest.mark.parametrize(
    ("columns", "are_whole"),
    [({}, True), ({"environments": [object()]}, False), ({"image": ["a picture"]}, False)],
)
def test_prompts_with_images_or_environments_may_be_equal(
    columns: dict[str, Any], are_whole: bool
) -> None:
    trainer = SimpleNamespace(
        reward_funcs=[share_of_sevens],
        args=SimpleNamespace(num_generations=2),
        model=SimpleNamespace(training=True),
    )
    calls = RewardCalls(trainer, Guard())
    texts = ["77", "7", "12", "5"]
    trainer.reward_funcs[0](
        prompts=["1+1="] * 4, completions=texts, completion_ids=[[3]] * 4, **columns
    )
    batch = calls.batch(1, 0)
    assert batch is not None
    assert batch.prompts_are_whole == are_whole
    assert ("groups/repeated_prompt_rate" in rollout_readings(batch)) == are_whole
    assert private_names.has_hidden_task(columns) != are_whole
