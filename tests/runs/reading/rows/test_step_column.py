"""The column of the step, where several may hold it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grpodoctor.runs.reading.framework_follower import FrameworkFollower
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar

Columns = Callable[[int], dict[str, int]]


def line(row: int, columns: Columns) -> str:
    return json.dumps({**columns(row), "mean_reward": row / 64, "entropy": 1.5}) + "\n"


def steps_of(path: Path, columns: Columns, rows: int = 60) -> tuple[list[int], list[str]]:
    path.write_text("".join(line(row, columns) for row in range(rows)))
    run = open_run(path)
    steps = [step.step for step in run.steps]
    return steps, [note for note in run.notes if "does not rise" in note]


@pytest.mark.parametrize("updates", [1, 2, 12])
def test_the_parts_of_a_step_share_its_column(updates: int, tmp_path: Path) -> None:
    """The rows of the updates count updates as well, which the rows of the rollouts do not."""
    path, rows = tmp_path / "log.jsonl", list[dict[str, object]]()
    for step in range(1, 31):
        rows.append({"type": "rollout", "grpo_step": step, "mean_reward": step / 32})
        rows += (
            {
                "type": "train",
                "grpo_step": step,
                "optimizer_step": updates * (step - 1) + update + 1,
                "entropy": step + update / updates,
            }
            for update in range(updates)
        )
        rows.append({"type": "summary_of_step", "grpo_step": step, "optimizer_step": step * 7})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = open_run(path)
    steps = {step.step: step.values for step in run.steps}
    assert list(steps) == list(range(1, 31))
    assert all({"reward/mean", "entropy/mean"} <= values.keys() for values in steps.values())
    assert scalar(steps[20]["entropy/mean"]) == pytest.approx(20 + (updates - 1) / updates / 2)
    note = "the step is read from grpo_step, because some rows have no optimizer_step"
    assert note in run.notes


@pytest.mark.parametrize("constant", [False, True])
def test_the_length_of_an_episode_is_not_the_step(constant: bool, tmp_path: Path) -> None:
    def columns(row: int) -> dict[str, int]:
        return {"episode": row + 1, "steps": 6 if constant else 4 + row % 3, "update": 3 * row}

    steps, notes = steps_of(tmp_path / "log.jsonl", columns)
    assert steps == [3 * row for row in range(60)]
    assert notes == [
        "the step is read from update, because steps does not rise from row to row",
    ]


def test_an_episode_is_the_step_if_nothing_else_rises(tmp_path: Path) -> None:
    steps, _ = steps_of(tmp_path / "log.jsonl", lambda row: {"episode": row, "steps": 9 - row % 4})
    assert steps == list(range(60))


def test_rows_are_counted_if_no_column_rises(tmp_path: Path) -> None:
    steps, notes = steps_of(tmp_path / "log.jsonl", lambda row: {"steps": 4 + row % 3})
    assert steps == list(range(1, 61))
    assert notes == ["the rows are counted, because steps does not rise from row to row"]


def test_rows_are_counted_if_episodes_of_one_length_begin_again(tmp_path: Path) -> None:
    steps, _ = steps_of(tmp_path / "log.jsonl", lambda row: {"episode": row % 2, "steps": 50})
    assert steps == list(range(1, 61))
    # Without episodes nothing shows that it is a length.
    assert set(steps_of(tmp_path / "other.jsonl", lambda _: {"steps": 50})[0]) == {50}


def test_a_step_that_begins_again_in_each_epoch_gives_way_to_the_global_one(tmp_path: Path) -> None:
    def columns(row: int) -> dict[str, int]:
        return {"step": row % 6, "global_step": row}

    assert steps_of(tmp_path / "log.jsonl", columns)[0] == list(range(60))


@pytest.mark.parametrize(
    "columns",
    [
        lambda row: {"step": row, "global_step": 8 * row, "episode": 64 * row},
        lambda row: {"steps": row, "episode": row},
        lambda row: {"step": row if row < 20 else row - 5, "update": row},  # resumed once
        lambda row: {"step": row // 8, "update": row},  # updates of a rollout
        lambda row: {"step": 0, "episode": row},  # responses of the first step
    ],
)
def test_a_step_that_rises_is_kept(columns: Columns, tmp_path: Path) -> None:
    steps, notes = steps_of(tmp_path / "log.jsonl", columns)
    kept = "step" if "step" in columns(0) else "steps"
    assert set(steps) == {columns(row)[kept] for row in range(60)}
    assert notes == []


def test_a_log_that_grows_gives_the_steps_of_the_complete_one(tmp_path: Path) -> None:
    """The first rows rise by chance; the eleventh shows that they are no steps."""
    path = tmp_path / "log.jsonl"
    follower, steps = FrameworkFollower(path), list[int]()
    restarts = start = 0
    for end in (7, 11, 60):
        with path.open("a") as file:
            for row in range(start, end):
                file.write(line(row, lambda row: {"steps": 4 + row % 3, "update": 3 * row}))
        start, more = end, 2
        while more:
            poll = follower.poll(final=end == 60)
            restarts += poll.restarted
            steps = [] if poll.restarted else [*steps, *(step.step for step in poll.steps)]
            if not poll.more:
                time.sleep(0.35)  # the log is quiet
                more -= 1
    assert restarts == 1
    assert list(dict.fromkeys(steps)) == [3 * row for row in range(60)]
