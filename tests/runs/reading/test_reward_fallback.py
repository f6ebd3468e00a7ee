"""Logs whose reward has a name that is in no table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpodoctor.runs.reading.key_words import reward_key_among, whole_reward_among
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
