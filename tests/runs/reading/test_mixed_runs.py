"""A directory with another run in it, and logs with several rows for each step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from grpodoctor.errors import MixedRunsError, RunError
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.vocabulary.values import scalar


def written(path: Path, steps: range, reward: Callable[[int], float], *, rows: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {"step": step, "reward": reward(step), "reward_std": 0.1 + reward(step) / 9,
         "completions/mean_length": 100 + 7 * reward(step) + row, "learning_rate": 1e-6}
        for step in steps
        for row in range(rows)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def one(step: int) -> float:
    return step / 100


def other(step: int) -> float:
    return step / 70


def notes_of(path: Path) -> list[str]:
    run = open_run(path)
    list(run.steps)
    return run.notes if isinstance(run, FrameworkRun) else []


def test_two_runs_are_refused_by_name_and_the_latest_is_offered(tmp_path: Path) -> None:
    old = written(tmp_path / "seed1" / "metrics.jsonl", range(1, 31), one)
    written(tmp_path / "seed2" / "metrics.jsonl", range(1, 31), other)
    os.utime(old, (1e9, 1e9))
    with pytest.raises(RunError) as raised:
        list(open_run(tmp_path).steps)
    text = str(raised.value)
    assert "\n" not in text
    assert "2 runs" in text
    assert str(Path("seed1", "metrics.jsonl")) in text
    assert f"{Path('seed2', 'metrics.jsonl')} is the newest" in text


def test_two_copies_of_a_log_are_one_run(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", range(1, 31), one)
    written(tmp_path / "b.jsonl", range(1, 31), one)
    assert len(list(open_run(tmp_path).steps)) == 30


def test_a_job_resumed_into_another_file_is_one_run(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", range(1, 61), one)
    written(tmp_path / "b.jsonl", range(51, 91), other)
    assert {each.step for each in open_run(tmp_path).steps} == set(range(1, 91))


def test_logs_in_different_formats_are_reported_and_not_refused(tmp_path: Path) -> None:
    written(tmp_path / "metrics.jsonl", range(1, 31), one)
    rows = "\n".join(f"{step},{other(step)},0.2,100" for step in range(1, 31))
    header = "step,reward,reward_std,completions/mean_length\n"
    (tmp_path / "metrics.csv").write_text(f"{header}{rows}\n")
    assert any("if the logs belong to different runs" in note for note in notes_of(tmp_path))


def test_rows_of_one_step_are_merged(tmp_path: Path) -> None:
    path = written(tmp_path / "metrics.jsonl", range(1, 31), one, rows=4)
    run = open_run(path)
    steps = list(run.steps)
    assert [each.step for each in steps] == list(range(1, 31))
    assert scalar(steps[0].values["length/mean"]) == pytest.approx(100.07 + 1.5)
    assert any("4 rows per step" in note for note in notes_of(path))
    assert not any("restarted" in note for note in notes_of(path))


def test_the_last_row_counts_when_a_step_is_logged_twice(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "metrics.jsonl", range(1, 31), one)
    lines = path.read_text().splitlines()
    again = json.dumps({**json.loads(lines[9]), "reward": 0.9})
    path.write_text("\n".join([*lines[:10], again, *lines[10:]]) + "\n")
    step = next(each for each in open_run(path).steps if each.step == 10)
    assert scalar(step.values["reward/mean"]) == 0.9
    assert any("restarted" in note for note in notes_of(path))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (range(1, 61), range(5, 305, 5)),
        (range(0, 300, 10), range(5, 305, 10)),
        (range(1, 61), range(10, 310, 10)),
    ],
    ids=["every step and every fifth", "alternating", "every step and every tenth"],
)
def test_runs_with_other_first_steps_are_two_runs(
    first: range, second: range, tmp_path: Path
) -> None:
    written(tmp_path / "a.jsonl", first, one)
    written(tmp_path / "b.jsonl", second, other)
    with pytest.raises(MixedRunsError, match="contains 2 runs"):
        list(open_run(tmp_path).steps)


def test_the_log_of_the_evaluations_belongs_to_the_run(tmp_path: Path) -> None:
    written(tmp_path / "train.jsonl", range(1, 101), one)
    rows = [{"step": step, "eval/reward": 0.5, "eval/accuracy": 0.4} for step in range(5, 101, 5)]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "evaluation.jsonl").write_text("\n".join(lines) + "\n")
    assert len(list(open_run(tmp_path).steps)) == 100


def test_a_job_resumed_from_an_old_checkpoint_is_one_run(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", range(10, 210, 10), one)
    written(tmp_path / "b.jsonl", range(60, 300, 10), other)
    assert len(list(open_run(tmp_path).steps)) == 29
