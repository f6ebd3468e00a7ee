"""Difficulty filtering: prompts are skipped, reconsidered and retired by pass rate."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch

from grpodoctor.errors import ConfigError, DataError
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.algorithms.filters.difficulty import DifficultyConfig
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.trainer.data.loading import FileTask
from grpodoctor.trainer.data.pass_rates import DifficultyFilteredTask, filtered_by_difficulty
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.checkpoint import saved_config
from grpodoctor.trainer.task import Problem, Rewards
from grpodoctor.vocabulary.values import Rate, scalar


def data_file(folder: Path, rows: int) -> Path:
    path = folder / "data.jsonl"
    path.write_bytes(
        b"\n".join(orjson.dumps({"prompt": f"{n}+0=", "answer": str(n)}) for n in range(rows))
    )
    return path


@pytest.fixture
def source(tmp_path: Path) -> FileTask:
    """Twenty prompts to train on."""
    return FileTask(data_file(tmp_path, 20), data_file(tmp_path, 20))


RATES = {"0+0=": 0.0, "1+0=": 0.1, "2+0=": 0.2, "3+0=": 0.5, "4+0=": 0.8, "5+0=": 0.9, "6+0=": 1.0}
"""Of ten responses; any other prompt has 0.5."""


def step(
    task: DifficultyFilteredTask, number: int, count: int = 20, rates: Any = RATES
) -> list[str]:
    """A training step on a task, as the trainer takes it; returns the prompts drawn."""
    task.begin_step()
    drawn = task.problems(random.Random(number), count)
    visit(task, drawn, rates)
    return [each.prompt for each in drawn]


def visit(task: DifficultyFilteredTask, drawn: Sequence[Problem], rates: Any = RATES) -> None:
    problems = [each for each in drawn for _ in range(10)]
    correct = [place < 10 * rates.get(each.prompt, 0.5) for each in drawn for place in range(10)]
    task.observe(problems, Rewards([float(flag) for flag in correct], correct=correct))


def test_prompts_outside_the_band_are_not_drawn_after_the_next_estimate(source: FileTask) -> None:
    task = DifficultyFilteredTask(source, DifficultyConfig(every=2, explore=0))
    everything = set(step(task, 1))
    assert everything == {each.prompt for each in source._train}
    assert set(step(task, 2)) == everything  # the second step is before the second estimate
    left_out = {"0+0=", "1+0=", "5+0=", "6+0="}
    later = set[str]()
    for number in range(3, 9):
        later |= set(step(task, number))
        readings = task.readings()
        assert readings["prompts/outside_rate"] == Rate(4, 20)
        assert (scalar(readings["prompts/skipped_rate"]) or 0) > 0
    assert later == everything - left_out


def test_without_an_estimate_a_prompt_is_inside(source: FileTask) -> None:
    task = DifficultyFilteredTask(source, DifficultyConfig(every=1, explore=0))
    task.begin_step()
    visit(task, [Problem("x", "0+0=", "0")])
    drawn = step(task, 1, 19)
    assert "0+0=" not in drawn
    assert len(set(drawn)) == 19


def test_exploration_detects_a_recovered_pass_rate(source: FileTask) -> None:
    stuck = DifficultyFilteredTask(source, DifficultyConfig(every=1, explore=0))
    curious = DifficultyFilteredTask(source, DifficultyConfig(every=1, explore=0.3))
    seen = {}
    for name, task in (("stuck", stuck), ("curious", curious)):
        step(task, 0)
        drawn = [step(task, number, rates={}) for number in range(1, 30)]
        seen[name] = {prompt for batch in drawn[-5:] for prompt in batch}
    assert "0+0=" not in seen["stuck"]
    assert {"0+0=", "1+0=", "5+0=", "6+0="} <= seen["curious"]
    assert scalar(curious.readings()["prompts/outside_rate"]) == 0


def test_retired_prompts_never_return(source: FileTask) -> None:
    task = DifficultyFilteredTask(source, DifficultyConfig(retire_at=0.9))
    step(task, 0)
    drawn = {prompt for number in range(1, 20) for prompt in step(task, number, rates={})}
    assert drawn == {each.prompt for each in source._train} - {"5+0=", "6+0="}
    assert task.readings()["prompts/outside_rate"] == Rate(2, 20)


def test_skipped_prompts_fill_the_batch_with_retired_ones_last(
    source: FileTask,
) -> None:
    hopeless = dict.fromkeys((f"{n}+0=" for n in range(20)), 0.0)
    task = DifficultyFilteredTask(source, DifficultyConfig(every=1, explore=0, retire_at=0.9))
    step(task, 0, rates={**hopeless, "3+0=": 1.0})
    drawn = step(task, 1, rates=hopeless)
    assert len(drawn) == 20
    assert "3+0=" not in drawn
    solved = dict.fromkeys((f"{n}+0=" for n in range(20)), 1.0)
    easy = DifficultyFilteredTask(source, DifficultyConfig(retire_at=0.9))
    step(easy, 0, rates=solved)
    assert len(step(easy, 1, rates=solved)) == 20


def test_recent_visits_count_more(source: FileTask) -> None:
    task = DifficultyFilteredTask(source, DifficultyConfig(every=1, explore=0))
    problem = Problem("x", "3+0=", "3")
    for _ in range(4):
        visit(task, [problem], {"3+0=": 0.0})
    for _ in range(3):
        visit(task, [problem], {"3+0=": 1.0})
    task.begin_step()
    # 7 in 8 of the weight is on the last three visits: too easy now, though 3 of 7 visits solved.
    assert not task._is_kept(problem, random.Random(0))


def test_the_state_survives_being_written_and_read(tmp_path: Path) -> None:
    data = data_file(tmp_path, 20)
    settings = DifficultyConfig(every=2, explore=0.3, retire_at=0.9)
    whole, other = (DifficultyFilteredTask(FileTask(data, data), settings) for _ in range(2))
    for number in range(5):
        step(whole, number)
    other.restore(orjson.loads(orjson.dumps(whole.state())))
    for number in range(5, 15):
        assert step(whole, number) == step(other, number)
        assert whole.readings() == other.readings()
    fresh = DifficultyFilteredTask(FileTask(data, data), settings)
    fresh.restore(FileTask(data, data).state())  # of a run that had no filter
    assert len(step(fresh, 0)) == 20


def test_a_snapshot_is_independent_of_later_updates(source: FileTask) -> None:
    task = DifficultyFilteredTask(source, DifficultyConfig(every=1, explore=0))
    step(task, 0)
    before = task.state()
    kept = orjson.dumps(before)
    step(task, 1, rates={})
    assert orjson.dumps(before) == kept
    task.restore(before)
    assert orjson.dumps(task.state()) == kept


def test_without_difficulty_settings_the_task_is_unchanged(source: FileTask) -> None:
    assert filtered_by_difficulty(source, DifficultyConfig()) is source


SMALL = (
    *("threads=1", "model.warm_start_steps=30", "steps=6", "evaluation.every=0"),
    *("rollout.prompts_per_batch=4", "rollout.group_size=4", "optimizer.learning_rate=1e-3"),
    *("overlong.kind=soft-punishment", "overlong.buffer=28"),
)
EVERYTHING = (
    *("difficulty.every=2", "difficulty.low=0.1", "difficulty.high=0.9", "difficulty.explore=0.3"),
    *("difficulty.retire_at=0.95", "rollout.filter_groups=true", "rollout.drop_duplicates=true"),
    *("repetition.penalty=0.5", "loss.entropy_target=1.5", "loss.kl_coefficient=0.05"),
    *("loss.kl_placement=reward", "loss.kl_estimator=k1", "overlong.only_correct=true"),
)
REFILLED = (
    *("rollout.filter_groups=false", "rollout.dynamic_sampling=true", "rollout.refill=missing"),
    *("rollout.resample_limit=3", "task.name=sorting", "task.difficulty=1"),
)


def small(*assignments: str) -> TrainConfig:
    return load_config(assignments=[*SMALL, *assignments])


@pytest.mark.slow
@pytest.mark.parametrize(
    "refilled",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["filtered-file", "active-builtin"],
)
def test_a_resumed_run_with_all_features_equals_an_uninterrupted_one(
    refilled: bool, tmp_path: Path
) -> None:
    data = (f"task.data={data_file(tmp_path, 12)}", "model.warm_start_steps=60")
    settings = (*EVERYTHING, *(REFILLED if refilled else data))
    config = small(*settings)
    whole = Trainer(small(*settings, "record.enabled=false"), tmp_path / "whole")
    whole.run()
    part = Trainer(config, tmp_path / "part")
    part.run(lambda report: part.stop() if report.step == 3 else None)
    resumed = Trainer(saved_config(tmp_path / "part"), tmp_path / "part", resume=True)
    resumed.run()
    others = resumed.policy.model.state_dict()
    for name, each in whole.policy.model.state_dict().items():
        assert torch.equal(each, others[name])
    assert orjson.dumps(whole.task.state()) == orjson.dumps(resumed.task.state())
    outside = [step.values["prompts/outside_rate"] for step in read_run(tmp_path / "part").steps]
    assert len(outside) == 6
    assert scalar(outside[-1]) != 0  # the filter had something to remember


def test_difficulty_filtering_requires_correctness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blind.py").write_text("def reward(a, b, c):\n    return [1.0] * len(a)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    trainer = Trainer(small("difficulty.every=2", "task.reward=blind:reward"), tmp_path / "run")
    with pytest.raises(DataError, match=r"the correctness of responses.*set difficulty\.every=0"):
        trainer.run()


def test_an_empty_pass_rate_range_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no pass rate is between 0\.8 and 0\.2"):
        small("difficulty.low=0.8", "difficulty.high=0.2")


def test_repeated_prompts_are_dropped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [("1+1=", "2"), ("2+2=", "4"), ("1+1=", "2"), ("1+1=", "3"), ("3+3=", "6")]
    path = tmp_path / "repeated.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps({"prompt": p, "answer": a}) for p, a in rows))
    task = FileTask(path, data_file(tmp_path, 3))
    assert [(each.prompt, each.answer) for each in task._train] == [rows[0], rows[1], rows[4]]
    assert "2 rows repeat an earlier prompt and are dropped, 1 of them with another" in caplog.text
    caplog.clear()
    path.write_bytes(path.read_bytes().partition(b"\n")[2])
    FileTask(path, data_file(tmp_path, 3))
    assert "1 row repeats an earlier prompt and is dropped, 1 of them with another" in caplog.text
    caplog.clear()
    FileTask(data_file(tmp_path, 3), data_file(tmp_path, 3))
    assert caplog.text == ""
