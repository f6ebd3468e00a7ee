"""Logs whose reward has a name that no table knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpodoctor.runs.reading.key_words import reward_key_among
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
