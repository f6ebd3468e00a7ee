"""Logs with a stage before the run, and logs of programs that are built on a framework."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpodoctor.frameworks.registry import framework_named
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import scalar


def write_lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_supervised_rows_before_the_run_are_left_out(tmp_path: Path) -> None:
    supervised = [
        {"loss": 1.0, "entropy": 1.2, "mean_token_accuracy": 0.8, "grad_norm": 2.0}
        for _ in range(18)
    ]
    rows = [
        {"loss": 0.01, "reward": step / 50, "reward_std": 0.2, "entropy": 0.5, "kl": 0.01,
         "completions/mean_length": 90.0 + step, "frac_reward_zero_std": 0.1, "grad_norm": 1.0}
        for step in range(30)
    ]  # fmt: skip
    path = tmp_path / "output.log"
    end = "{'train_runtime': 410.7, 'train_loss': 0.25}\n"
    path.write_text(
        "".join(f"{row}\n" for row in supervised) + end + "".join(f"{row}\n" for row in rows) + end
    )
    run = open_run(path)
    steps = list(run.steps)
    assert [step.step for step in steps] == list(range(1, 31))
    assert scalar(steps[0].values["entropy/mean"]) == 0.5
    assert "18 rows of supervised fine-tuning in the same log are not used" in run.notes


def verl_agent_row(step: int) -> str:
    values = {
        "actor/pg_loss": 0.001, "actor/pg_clipfrac": 0.001, "actor/ppo_kl": 0.0,
        "critic/score/mean": 0.25, "critic/score/max": 1.0, "critic/score/min": 0.0,
        "episode/success_rate": 0.3, "episode/length/mean": 2.5,
        "episode/valid_action_ratio": 0.75, "response_length/mean": 120.5,
    }  # fmt: skip
    if step % 10 == 0:
        values |= {"val/nq/test_score": 0.2, "val/hotpotqa/test_score": 0.4,
                   "val/success_rate": 0.3}  # fmt: skip
    return f"step:{step} - " + " - ".join(f"{key}:{value}" for key, value in values.items())


def test_verl_agent_repeats_environments_and_validates_by_set(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    config = (
        "{'actor_rollout_ref': {'rollout': {'n': 1, 'name': 'vllm', 'mode': 'sync',\n"
        "                                   'dtype': 'bfloat16'}},\n"
        " 'env': {'env_name': 'search', 'rollout': {'n': 8}, 'seed': 42},\n"
        " 'trainer': {'logger': 'console', 'project_name': 'a', 'experiment_name': 'b'}}\n"
    )
    path.write_text(config + "\n".join(verl_agent_row(step) for step in range(1, 31)) + "\n")
    run = open_run(path)
    steps = {step.step: step.values for step in run.steps}
    assert run.manifest.knobs["group_size"] == 8
    assert scalar(steps[10]["accuracy/heldout"]) == 0.3
    assert abs((scalar(steps[10]["reward/heldout"]) or 0) - 0.3) < 1e-9
    assert scalar(steps[1]["environment/invalid_action_rate"]) == 0.25
    assert scalar(steps[1]["environment/turns_mean"]) == 2.5


def test_rows_that_are_marked_as_evaluations(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for step in range(0, 300, 10):
        rows.append({"step": step, "reward_mean": step / 1000, "loss": 0.1, "recall": 0.9})
        if step % 100 == 0:
            rows.append({"step": step, "eval": True, "recall@10": 0.05, "reward_mean": 0.7})
    run = open_run(write_lines(tmp_path / "log.jsonl", rows))
    steps = {step.step: step.values for step in run.steps}
    assert scalar(steps[100]["reward/mean"]) == 0.1
    assert scalar(steps[100]["reward/heldout"]) in (0.05, 0.7)
    assert "reward/heldout" not in steps[110]


def test_keys_that_are_canonical_names(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"step": step, "reward/mean": 0.5, "length/mean": 420.0, "advantage/zero_rate": 0.7}
        for step in range(30)
    ]
    run = open_run(write_lines(tmp_path / "log.jsonl", rows))
    values = next(iter(run.steps)).values
    assert scalar(values["length/mean"]) == 420
    assert scalar(values["advantage/zero_rate"]) == 0.7


def test_scripts_on_skyrl_log_the_mean_importance_ratio(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"step": step, "reward/avg_raw_reward": 1.5, "policy/is_ratio_mean": 0.75,
         "policy/rollout_train_logprobs_abs_diff_mean": 0.0}
        for step in range(30)
    ]  # fmt: skip
    run = open_run(write_lines(tmp_path / "log.jsonl", rows))
    values = next(iter(run.steps)).values
    assert run.manifest.framework == "skyrl"
    assert scalar(values["ratio/mean"]) == 0.75


@pytest.mark.parametrize(
    ("settings", "advantage"),
    [
        ({"trainer.algorithm.advantage_estimator": "maxrl"}, "max_rl"),
        ({"trainer.algorithm.advantage_estimator": "rloo"}, "leave_one_out"),
        ({"trainer.algorithm.grpo_norm_by_std": False}, "centred"),
        ({"trainer.algorithm.advantage_estimator": "grpo"}, "group"),
        ({"trainer.algorithm.advantage_estimator": "my_own"}, None),
    ],
)
def test_the_estimators_of_skyrl(settings: dict[str, Setting], advantage: str | None) -> None:
    assert framework_named("skyrl").knobs.read(settings).get("advantage") == advantage


def test_areal_loss_with_a_second_moment_threshold() -> None:
    knobs = framework_named("areal").knobs
    assert knobs.read({"actor.m2_threshold": 0.04})["loss"] == "m2po"
    assert knobs.read({"actor.m2_threshold": None, "actor.eps_clip": 0.2})["loss"] == "ppo_clip"
