"""Logs whose reward has a name that is in no table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpodoctor.runs.reading.key_words import (
    lone_reward_among,
    reward_key_among,
    whole_reward_among,
)
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.vocabulary.values import scalar


def opened(path: Path, *, mapping: dict[str, str] | None = None, **columns: float) -> FrameworkRun:
    rows = [
        {"step": step, "loss": 0.01, "entropy": 0.5,
         **{key: first + step / 100 for key, first in columns.items()}}
        for step in range(30)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = open_run(path, ReadOptions(mapping=mapping or {}))
    assert isinstance(run, FrameworkRun)
    return run


@pytest.mark.parametrize("key", ["selected_reward", "grpo/env_return", "judge/grade_score_avg"])
def test_the_only_key_named_like_a_reward_is_read_with_a_note(key: str, tmp_path: Path) -> None:
    run = opened(tmp_path / "log.jsonl", **{key: 0.25, "tokens_seen": 3.0})
    steps = list(run.steps)
    assert scalar(steps[4].values["reward/mean"]) == pytest.approx(0.29)
    assert any(f"{key} is read as reward/mean" in note for note in run.notes)
    assert key not in run.unused_keys.unmapped


def test_a_component_that_is_never_paid_is_no_second_reward(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [
        {"type": kind, "update": update, "kl_to_ref": 0.001 * update, "entropy": 0.5,
         "bleu_reward_mean": 0.5 + update / 100, "comet_reward_mean": 0.0}
        for update in range(30)
        for kind in ("train", *(["eval"] if update % 5 == 0 else []))
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = open_run(path, ReadOptions())
    assert isinstance(run, FrameworkRun)
    steps = list(run.steps)
    assert scalar(steps[6].values["reward/mean"]) == pytest.approx(0.56)
    assert "reward/heldout" not in steps[6].values
    assert scalar(steps[10].values["reward/heldout"]) == pytest.approx(0.6)
    assert any("eval/bleu_reward_mean is read as reward/heldout" in note for note in run.notes)


def test_a_known_reward_or_accuracy_leaves_the_others_alone(tmp_path: Path) -> None:
    run = opened(tmp_path / "log.jsonl", accuracy=0.2, shaped_env_score=0.1)
    assert "reward/mean" not in next(iter(run.steps)).values
    assert not any("because of its name" in note for note in run.notes)


def test_the_users_mapping_decides(tmp_path: Path) -> None:
    mapping = {"other": "reward/mean"}
    run = opened(tmp_path / "log.jsonl", mapping=mapping, other=0.5, my_env_score=0.1)
    assert scalar(next(iter(run.steps)).values["reward/mean"]) == 0.5


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (["planner_score", "executor_score"], ""),
        (["planner_score", "executor_score", "total_score"], "total_score"),
        (["best_reward"], ""),
        (["reward/style_mean", "reward/chosen_mean", "reward/chosen_std"], "reward/chosen_mean"),
        (["reward/a_mean", "reward/a_std", "reward/b_mean", "reward/b_std"], ""),
        (["eval/judge_score"], ""),
        (["reward_std", "reward_max", "format_reward"], ""),
        (["reward_valid_rate"], ""),
        (["advantage_score"], ""),
        (["score_weights/length"], ""),
        (["bleu_score_mean", "bleu_reward_mean", "comet_score_mean"], "bleu_reward_mean"),
        (["bleu_reward_mean", "token_rewards_mean"], "bleu_reward_mean"),
        (["bleu_reward_mean", "comet_reward_mean"], ""),
        (["brevity_reward_mean", "format_reward_mean"], ""),
        (["brevity_reward_mean", "accuracy_reward_mean", "total_reward_mean"], "total_reward_mean"),
        (["bleu_reward_mean", "bleu_reward_std", "eval/bleu_reward_mean"], "bleu_reward_mean"),
    ],
)
def test_only_one_key_may_be_meant(keys: list[str], chosen: str) -> None:
    assert reward_key_among(dict.fromkeys(keys, 30)) == chosen
    assert reward_key_among(dict.fromkeys(keys, 2)) == ""


def test_a_component_that_is_named_like_the_whole_reward_is_it(tmp_path: Path) -> None:
    columns = {"rewards/json_valid/mean": 0.1, "rewards/reward/mean": 0.5}
    run = opened(tmp_path / "log.jsonl", mapping=None, **columns)
    first = next(iter(run.steps)).values
    assert scalar(first["reward/mean"]) == 0.5
    assert scalar(first["reward/component/json_valid/mean"]) == 0.1
    assert any("rewards/reward/mean is read as reward/mean" in note for note in run.notes)
    assert run.unused_keys.components == ()


def test_a_total_leaves_a_component_with_its_name_alone(tmp_path: Path) -> None:
    columns = {"rewards/reward/mean": 0.5, "reward": 0.25}
    first = next(iter(opened(tmp_path / "log.jsonl", mapping=None, **columns).steps)).values
    assert scalar(first["reward/mean"]) == 0.25


def test_components_without_a_total_are_named(tmp_path: Path) -> None:
    columns = {"rewards/b_func/mean": 0.1, "rewards/a_func/mean": 0.5, "rewards/a_std": 0.1,
               "rewards/eval_a": 0.5}  # fmt: skip
    run = opened(tmp_path / "log.jsonl", mapping=None, **columns)
    assert "reward/mean" not in next(iter(run.steps)).values
    assert run.unused_keys.components == ("rewards/a_func/mean", "rewards/b_func/mean")


@pytest.mark.parametrize(
    ("names", "whole"),
    [
        (["reward", "format"], "reward"),
        (["reward", "total_reward"], "total_reward"),
        (["reward_func", "length"], "reward_func"),
        (["reward", "score"], ""),
        (["reward_1", "reward_2"], ""),
        (["accuracy_reward"], ""),
        (["eval_reward"], ""),
    ],
)
def test_the_component_that_is_the_whole_reward(names: list[str], whole: str) -> None:
    keys = [f"rewards/{name}/mean" for name in names]
    chosen = f"rewards/{whole}/mean" if whole else ""
    assert whole_reward_among(dict.fromkeys(keys, 30)) == chosen
    assert whole_reward_among(dict.fromkeys(keys, 2)) == ""


def test_the_only_component_is_the_reward(tmp_path: Path) -> None:
    run = opened(tmp_path / "log.jsonl", **{"objective/train/accuracy_reward": -0.5})
    assert scalar(list(run.steps)[10].values["reward/mean"]) == pytest.approx(-0.4)
    assert any("the log has no other reward" in note for note in run.notes)


@pytest.mark.parametrize(
    ("names", "lone"),
    [
        (["rewards_curve"], "rewards_curve"),
        (["rewards/format_reward"], ""),
        (["rewards/think_reward"], ""),
        (["rewards/soft_overlong_punishment"], ""),
        (["rewards/accuracy", "rewards/format"], ""),
    ],
)
def test_a_component_for_the_form_is_not_the_reward(names: list[str], lone: str) -> None:
    assert lone_reward_among(dict.fromkeys(names, 30)) == lone
    assert lone_reward_among(dict.fromkeys(names, 2)) == ""


def _rows(path: Path, values: list[float], key: str) -> list[float | None]:
    rows = [{"step": i, "reward": 0.1, "loss": 0.1, key: each} for i, each in enumerate(values)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    metric = {"truncated": "length/truncated_rate", "accuracy": "accuracy/train"}[key]
    readings = [step.values.get(metric) for step in open_run(path, ReadOptions()).steps]
    return [None if each is None else scalar(each) for each in readings]


def test_counts_of_truncated_responses_are_no_shares(tmp_path: Path) -> None:
    """A public log counts them per group of four: a 1 is no share of 100 %."""
    assert _rows(tmp_path / "a.jsonl", [1, 3, 2, 0, 1, 4] * 5, "truncated") == [None] * 30
    assert _rows(tmp_path / "b.jsonl", [1, 0, 0.25, 0, 1, 0.5] * 5, "truncated")[2] == 0.25


def test_an_accuracy_in_percent_is_read_as_a_share(tmp_path: Path) -> None:
    """Singly, 0 and 1 of a hundred would look like shares."""
    read = _rows(tmp_path / "a.jsonl", [0, 33.5, 1, 66.5, 50, 12.5] * 5, "accuracy")
    assert read[:4] == [0, pytest.approx(0.335), pytest.approx(0.01), pytest.approx(0.665)]
    assert _rows(tmp_path / "b.jsonl", [0.2, 0.3, 1, 0] * 6, "accuracy")[2] == 1
