"""Logs whose rows or keys come from two programs: prime-rl's processes, rLLM on top of verl."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from grpodoctor.frameworks.registry import framework_named, generic_framework, logging_frameworks
from grpodoctor.frameworks.translation import Translator
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar

Row = dict[str, float]


def written(path: Path, rows: Iterable[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_time_that_both_processes_log_does_not_replace_the_step(tmp_path: Path) -> None:
    agent = "train/agg/all/default"
    rows = [
        {"step": step, "time": 1.8e9 + step, **values}
        for step in range(6)
        for values in (
            {f"{agent}/reward/mean": 0.25, f"{agent}/solved_none": 0.5},
            {"time/step": 90.0 + step, "time/pack": 0.5},
            {"optim/lr": 1e-6, "optim/grad_norm": 0.25},
            {"entropy/all/mean": 0.5, "mismatch_kl/all/mean": 0.001, "is_masked/mean": 0.0},
            {"time/step": 45.0 + step, "time/wait_for_batch": 1.0},
        )
    ]
    run = open_run(written(tmp_path / "metrics.jsonl", rows))
    steps = list(run.steps)
    assert run.manifest.framework == "prime-rl"
    assert [step.step for step in steps] == list(range(6))
    for step in steps:
        assert scalar(step.values["reward/mean"]) == 0.25
        assert scalar(step.values["entropy/mean"]) == 0.5
        assert scalar(step.values["time/step"]) == 45.0 + step.step


def read(framework: str, row: Row) -> dict[str, float | None]:
    found = framework_named(framework, logging_frameworks())
    readings = Translator(found, generic=generic_framework()).readings(row)
    return {name: scalar(reading) for name, reading in readings.items()}


def test_shares_and_roles_of_rllm_next_to_the_keys_of_verl() -> None:
    readings = read(
        "verl",
        {
            "actor/pg_loss": 0.01,
            "batch/solve_none": 0.25,
            "batch/solve_all": 0.125,
            "batch/solve_partial": 0.625,
            "reward/default/mean": 0.5,
            "advantage/default/fraction_zero": 0.375,
            "batch/termination_reason/max_response_length_exceeded": 0.0625,
            "batch/termination_reason/error": 0.03125,
        },
    )
    assert readings["groups/all_incorrect_rate"] == 0.25
    assert readings["groups/all_correct_rate"] == 0.125
    assert readings["reward/mean"] == 0.5
    assert readings["advantage/zero_rate"] == 0.375
    assert readings["length/truncated_rate"] == 0.0625
    assert readings["rollouts/error_rate"] == 0.03125


def test_a_share_of_the_common_names_needs_all_of_its_keys() -> None:
    assert "groups/all_incorrect_rate" not in read("verl", {"batch/solve_none": 3.0})


@pytest.mark.parametrize(("loss", "explained"), [(0.125, 0.0), (0.03125, 0.75), (0.25, -1.0)])
def test_the_critic_of_openrlhf_is_judged_by_its_loss(loss: float, explained: float) -> None:
    row = {"critic_loss": loss, "values": 0.5, "rollout/reward_std": 0.5, "policy_loss": 0.0}
    readings = read("openrlhf", row)
    assert readings["critic/explained_variance"] == explained
    assert readings["critic/value_mean"] == 0.5
    equal = read("openrlhf", {**row, "rollout/reward_std": 0.0})
    assert equal.get("critic/explained_variance") is None


def test_the_loss_masks_of_slime_s_episodes() -> None:
    family = "multi_turn/{}/response_length_mean"
    row = {
        family.format("raw_response_length"): 2000.0,
        family.format("wo_obs_response_length"): 500.0,
        "multi_turn/multi_turn_metric/round_number_mean": 4.0,
    }
    readings = read("slime", row)
    assert readings["optimizer/response_in_loss_rate"] == 0.25
    assert readings["environment/turns_mean"] == 4.0
