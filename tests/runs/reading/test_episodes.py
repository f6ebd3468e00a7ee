"""Logs of environments: turns are no tokens, and a column names the stage of the tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.vocabulary.values import scalar


def _opened(
    path: Path, *, mapping: dict[str, str] | None = None, **columns: object
) -> FrameworkRun:
    rows = [{"step": step, "mean_reward": 0.1 + step / 100, **columns} for step in range(30)]
    for row in rows[20:]:
        row.update({key: "hard" for key, value in columns.items() if value == "easy"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = open_run(path, ReadOptions(mapping=mapping or {}))
    assert isinstance(run, FrameworkRun)
    return run


TURNS = {"episode/mean_length": 10.0, "verifier/truncation_rate": 1.0}


def test_the_length_of_an_episode_counts_turns(tmp_path: Path) -> None:
    run = _opened(tmp_path / "log.jsonl", **TURNS)
    values = list(run.steps)[5].values
    assert scalar(values["environment/turns_mean"]) == 10
    assert not {"length/mean", "length/truncated_rate"} & values.keys()
    assert "turns" in run.unused_keys.rejected["verifier/truncation_rate"]


@pytest.mark.parametrize("key", ["response_length_tokens", "completion_tokens_mean"])
def test_a_log_with_tokens_as_well_has_truncated_responses(key: str, tmp_path: Path) -> None:
    values = list(_opened(tmp_path / "log.jsonl", **TURNS, **{key: 90.0}).steps)[5].values
    assert scalar(values["length/truncated_rate"]) == 1
    assert scalar(values["length/mean"]) == 90


def test_the_users_mapping_of_a_truncated_share_counts(tmp_path: Path) -> None:
    mapping = {"verifier/truncation_rate": "length/truncated_rate"}
    values = list(_opened(tmp_path / "log.jsonl", mapping=mapping, **TURNS).steps)[5].values
    assert scalar(values["length/truncated_rate"]) == 1


def test_a_text_that_names_the_difficulty_is_the_stage(tmp_path: Path) -> None:
    steps = list(_opened(tmp_path / "log.jsonl", difficulty="easy").steps)
    stages = [scalar(step.values["prompts/stage"]) for step in steps]
    assert stages == [0.0] * 20 + [1.0] * 10


@pytest.mark.parametrize(("number", "stage"), [(2, 2.0), (0.45, None)])
def test_a_mean_difficulty_is_no_stage(number: float, stage: float | None, tmp_path: Path) -> None:
    steps = list(_opened(tmp_path / "log.jsonl", difficulty=number).steps)
    reading = steps[3].values.get("prompts/stage")
    assert (None if reading is None else scalar(reading)) == stage
