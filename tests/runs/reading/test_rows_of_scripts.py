"""Rows as scripts log them: several updates per step, evaluations now and then, responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.errors import RunError
from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar


def written(rows: list[dict[str, Any]], directory: Path) -> Path:
    path = directory / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def values_of(path: Path, name: str) -> dict[int, float | None]:
    steps = open_run(path).steps
    return {step.step: scalar(step.values[name]) for step in steps if name in step.values}


def updates(steps: int, per_step: int) -> list[dict[str, Any]]:
    """A row of each rollout, one of each update, and an evaluation with a count of its own."""
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        rows.append({"grpo_step": step, "train/reward_mean": step / 100, "train/reward_max": 1.0})
        rows += [
            {"grpo_step": step, "train/loss": 0.01 * update, "train/entropy": 0.5 + update,
             "train/grad_norm": 0.1, "train/clip_fraction": 0.001}
            for update in range(per_step)
        ]  # fmt: skip
        if step % 5 == 0:
            rows.append({"eval_step": step // 5, "eval/accuracy": step / 200})
    return [{**row, "_step": call} for call, row in enumerate(rows)]


@pytest.mark.parametrize("per_step", [1, 4])
def test_calls_of_the_logger_are_no_steps_where_the_rows_count_their_own(
    per_step: int, tmp_path: Path
) -> None:
    path = written(updates(30, per_step), tmp_path)
    assert values_of(path, "reward/mean") == {step: step / 100 for step in range(1, 31)}
    evaluated = {step: step / 200 for step in range(5, 31, 5)}
    assert values_of(path, "accuracy/heldout") == evaluated
    entropies = values_of(path, "entropy/mean")
    # The kind of row is known to be one of several from the second row on.
    assert entropies[30] == pytest.approx(0.5 + (per_step - 1) / 2)


def test_a_length_that_repeats_is_no_step_of_several_updates(tmp_path: Path) -> None:
    """`steps` is the length of an episode here: the rows are counted."""
    rows = [{"steps": 8 - call % 2, "reward": call / 50, "_step": call} for call in range(40)]
    rewards = values_of(written(rows, tmp_path), "reward/mean")
    assert list(rewards.values()) == [call / 50 for call in range(40)]


def test_a_result_of_0_beside_one_of_null_was_not_measured(tmp_path: Path) -> None:
    rows = [
        {
            "step": step,
            "reward_mean": 0.1 + 0.004 * step,
            "val_accuracy": step / 200 if step % 10 == 0 else None,
            "val_mean_reward": step / 200 if step % 10 == 0 else 0.0,
        }
        for step in range(1, 101)
    ]
    path = written(rows, tmp_path)
    assert values_of(path, "reward/heldout") == {step: step / 200 for step in range(10, 101, 10)}
    assert not any(finding.severity != "info" for finding in replay(path).report.findings)


def test_results_of_0_are_kept_where_all_are_measured(tmp_path: Path) -> None:
    rows = [
        {"step": step, "reward_mean": 0.4, "val_accuracy": 0.0, "val_mean_reward": 0.0}
        for step in range(1, 11)
    ]
    assert set(values_of(written(rows, tmp_path), "reward/heldout").values()) == {0.0}


def test_responses_are_no_steps(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": f"What is {n} + 1?", "generated_text": str(n + 1), "reward": float(n % 3 == 0)}
        for n in range(40)
    ]
    path = written([*rows, {"accuracy": 0.4}], tmp_path)
    assert values_of(path, "reward/mean") == {0: pytest.approx(14 / 40)}
    unjudged = [{**row, "reward": None, "quality": row["reward"]} for row in rows]
    with pytest.raises(RunError, match="one response"):
        open_run(written([*unjudged, {"accuracy": 0.4}], tmp_path))
    numbered = [{"step": n, **row} for n, row in enumerate(rows)]
    assert len(values_of(written(numbered, tmp_path), "reward/mean")) == len(numbered)


def test_a_callback_may_print_the_keys_of_the_framework(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(
            f"[Step {step}] loss=0.0000 grad_norm=0.0010 completions/mean_length=1024.0 "
            f"completions/clipped_ratio=1.0000 rewards/score/mean=0.3 reward=0.3{step % 2} "
            "clip_ratio/low_mean=0.0000\n"
            for step in range(1, 31)
        )
    )
    assert set(values_of(path, "length/truncated_rate").values()) == {1.0}


def test_a_list_of_runs_may_have_columns_in_each_history(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    runs = [
        {
            "algorithm": name,
            "final_acc": 0.3,
            "history": {
                "rewards": [level + 0.01 * (n % 3) for n in range(40)],
                "losses": [0.1] * 40,
                "eval_accs": [0.2, 0.3],
            },
        }
        for name, level in (("grpo", 0.2), ("ppo", 0.6))
    ]
    path.write_text(json.dumps(runs))
    with pytest.raises(RunError, match="grpo"):
        open_run(path)
