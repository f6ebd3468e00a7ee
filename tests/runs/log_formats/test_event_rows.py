"""JSON lines with a row for each part of a step, as small teams write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import scalar


def opened(rows: Iterable[Mapping[str, Any]], directory: Path) -> tuple[FrameworkRun, Any]:
    path = directory / "metrics.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    run = open_run(path)
    assert isinstance(run, FrameworkRun)
    return run, {each.step: each for each in run.steps}


def value(step: StepRecord, metric: str) -> float | None:
    return scalar(step.values[metric])


def events(kind: str, step_key: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for step in range(1, 41):
        reward = 0.2 + step / 100
        rows += [
            {kind: "rollout", step_key: step, "reward_mean": reward, "fraction_clipped": 0.125,
             "avg_response_token_length": 200.5},
            {kind: "train", step_key: step, "reward_mean": reward, "token_entropy": 0.75,
             "stats": {"grad_norm": 1.5}},
        ]  # fmt: skip
        if step % 10 == 0:
            rows.append({kind: "evaluation", step_key: step, "reward_mean": 0.9,
                         "answer_accuracy": 0.4})  # fmt: skip
    return rows


@pytest.mark.parametrize("kind", ["type", "phase", "split"])
@pytest.mark.parametrize("step_key", ["step", "iteration", "train_step"])
def test_rows_of_a_step_are_joined_and_evaluations_kept_apart(
    kind: str, step_key: str, tmp_path: Path
) -> None:
    run, steps = opened(events(kind, step_key), tmp_path)
    assert list(steps) == list(range(1, 41))
    last = steps[40]
    assert value(last, "reward/mean") == pytest.approx(0.6), "not that of the evaluation"
    assert last.values["reward/mean"].count == 1, "the reward of both rows is one measurement"
    assert value(last, "reward/heldout") == 0.9
    assert value(last, "accuracy/heldout") == 0.4
    assert value(last, "entropy/mean") == 0.75
    assert value(last, "length/mean") == 200.5
    assert value(last, "clip/any_rate") == 0.125
    assert value(last, "optimizer/grad_norm") == 1.5
    assert "accuracy/train" not in last.values
    assert not any("repeat" in note for note in run.notes)


def test_an_evaluation_without_a_step_belongs_to_the_latest_one(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"step": step, "reward": 0.5 + step / 64} for step in range(9)]
    rows.insert(5, {"split": "val", "accuracy": 0.25})
    _, steps = opened(rows, tmp_path)
    assert value(steps[4], "accuracy/heldout") == 0.25
    assert list(steps) == list(range(9))


def test_stages_of_a_curriculum_are_not_parts_of_a_step(tmp_path: Path) -> None:
    rows = [
        {"stage": stage, "step": step, "reward": 0.5 + step / 64 + len(stage), "loss": 0.25}
        for stage in ("easy", "hardest")
        for step in range(20)
    ]
    run, steps = opened(rows, tmp_path)
    assert len(steps) == 20
    assert any("contains 2 runs" in note for note in run.notes)


def test_an_unknown_prefix_is_read_by_the_last_part_with_a_note(tmp_path: Path) -> None:
    rows = [
        {"step": step, "grpo/stats/reward_mean": 0.25, "grpo/optim/grad_norm": 1.5,
         "teacher/entropy": 0.5, "eval_math/accuracy": 0.25, "eval_code/accuracy": 0.75}
        for step in range(30)
    ]  # fmt: skip
    run, steps = opened(rows, tmp_path)
    last = steps[29]
    assert value(last, "reward/mean") == 0.25
    assert value(last, "optimizer/grad_norm") == 1.5
    assert "entropy/mean" not in last.values, "the teacher's"
    assert value(last, "accuracy/heldout/set/eval_math") == 0.25
    assert value(last, "accuracy/heldout") == 0.5
    pair = "grpo/optim/grad_norm as optimizer/grad_norm"  # longer than other names in notes
    assert any("unknown prefix" in note and pair in note for note in run.notes)


def test_two_keys_with_the_same_last_part_are_both_left_out(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 0.5, "math/reward": 0.25, "code/reward": 0.5}
            for step in range(30)]  # fmt: skip
    _, steps = opened(rows, tmp_path)
    assert "reward/mean" not in steps[29].values


def test_settings_and_summaries_are_not_steps(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"type": "config", "learning_rate": 0.5, "reward": 9.0, "seed": 1},
        *({"type": "train", "step": step, "reward": 0.25, "learning_rate": 1e-6, "loss": 0.5}
          for step in range(1, 31)),
        {"type": "summary", "step": 30, "reward": 0.75, "loss": 0.125},
    ]  # fmt: skip
    run, steps = opened(rows, tmp_path)
    assert list(steps) == list(range(1, 31))
    assert value(steps[30], "reward/mean") == 0.25
    assert value(steps[1], "optimizer/learning_rate") == 1e-6
    assert run.follower.translator is not None


def test_rows_of_single_responses_are_averaged(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for step in range(1, 31):
        rows += [{"type": "completion", "step": step, "reward": float(number % 2)}
                 for number in range(4)]  # fmt: skip
        rows.append({"type": "train", "step": step, "loss": 0.5, "grad_norm": 1.5})
    run, steps = opened(rows, tmp_path)
    assert list(steps) == list(range(1, 31))
    assert value(steps[30], "reward/mean") == 0.5
    assert value(steps[30], "optimizer/loss") == 0.5
    assert any("4 rows per step" in note for note in run.notes)


def test_rows_with_a_log_type_are_told_apart(tmp_path: Path) -> None:
    """One row per episode: `final_reward`, `solved`, and evaluations at the step of a training."""
    rows: list[dict[str, Any]] = []
    for step in range(1, 31):
        row = {"step": step, "secret": "CRANE", "solved": step % 2 == 0, "final_reward": -1.0}
        rows.append({"log_type": "train", **row})
        if step % 10 == 0:
            rows += [{"log_type": "eval", **row, "solved": at == 0} for at in range(4)]
    _, steps = opened(rows, tmp_path)
    assert value(steps[10], "reward/mean") == -1
    assert value(steps[10], "accuracy/train") == 1
    assert {step for step, each in steps.items() if "accuracy/heldout" in each.values} == {
        10, 20, 30
    }  # fmt: skip


def test_steps_that_begin_again_in_each_epoch_continue(tmp_path: Path) -> None:
    rows = [
        {"epoch": epoch, "step": step, "reward": epoch + step / 10}
        for epoch in range(3)
        for step in range(10)
    ]
    run, steps = opened(rows, tmp_path)
    assert list(steps) == list(range(30))
    assert value(steps[25], "reward/mean") == 2.5
    assert not [note for note in run.notes if "one after the other" in note]


def test_a_second_run_begins_again_with_its_first_epoch(tmp_path: Path) -> None:
    rows = [
        {"epoch": epoch, "step": step, "reward": run + epoch + step / 10}
        for run in range(2)
        for epoch in range(2)
        for step in range(1, 11)
    ]
    _, steps = opened(rows, tmp_path)
    assert list(steps) == list(range(1, 21))
    assert value(steps[15], "reward/mean") == 2.5


def test_the_index_of_a_batch_is_a_step(tmp_path: Path) -> None:
    rows = [
        {"batch_index": step, "batch_size": 4, "reward_mean": step / 10} for step in range(1, 9)
    ]
    _, steps = opened([*rows, *rows[:5]], tmp_path)
    assert max(steps) == 8
