"""ROLL's pipelines: RLVR, whose driver logs JSON, and the agentic one."""

from __future__ import annotations

import json
import math
from pathlib import Path

from tests.frameworks.log_writers.base import (
    LoggedRun,
    Row,
    Values,
    given,
    heldout,
    rows,
    write_events,
)


def _shared_keys(values: Values) -> Row:
    """Metrics of both pipelines; the console keeps how each is reduced."""
    row = {
        "critic/entropy/mean": values["entropy"],
        "critic/score/mean": values["reward"],
        "critic/score/max": values.get("max_reward", 1.0),
        "critic/score/min": values.get("min_reward", 0.0),
        "critic/advantages/mean": values.get("mean_advantage", 0.0),
        "critic/advantages/max": values["max_advantage"],
        "critic/advantages/min": values["min_advantage"],
        "actor/ppo_ratio_clipfrac@sum": 2 * values["clipped"],
        "actor/clipfrac@sum": values["clipped"],
        "actor/ratio_mean@sum": 1.0,
        "actor/ratio_max@max": values.get("max_ratio", 1.9),
        "actor/ratio_min@min": 0.4,
        "actor/policykl@sum": -values["old_kl"],
        "actor/approxkl@sum": values["old_kl"],
        "actor/total_loss@sum": values["loss"],
        "actor/valid_sample_ratio@sum": 1.0,
        "actor/lr": values["learning_rate"],
        "actor/backward_steps": 4,
        "actor_train/grad_norm": values["grad_norm"],
    }
    row |= given(values, {"actor/kl_loss@sum": "kl"})
    if "engine_kl" in values:
        gap = values.get("engine_k1", values["engine_kl"])
        row["actor/train_infer_ratio_token_mean@sum"] = values["weight"]
        row["actor/train_infer_ratio_geometric_mean@sum"] = math.exp(-gap)
        row["actor/train_infer_diff_token_mean@sum"] = -values["prob_diff"] / 2
    return row


def _rlvr_keys(values: Values, responses: int) -> Row:
    correct = round(values.get("accuracy", values["reward"]) * responses)
    right = values.get("length_correct", 0.9 * values["length"])
    return {
        "time/step_total": values["seconds"],
        "time/step_generate": values.get("rollout_seconds", values["seconds"] / 2),
        "time/step_train": values.get("learn_seconds", values["seconds"] / 4),
        "time/ref_log_probs_values": values["seconds"] / 20,
        "math_rule/scheduler/off_policy_ratio": values.get("staleness", 0.0),
        "math_rule/actor/final_mask_ratio": 1.0,
        **given(values, {"math_rule/critic/kl": "kl"}),
        "math_rule/critic/score/mean": values["reward"],
        "system/batch_size": responses,
        "token/prompt_length/mean": values["prompt_length"],
        "token/response_length/mean": values["length"],
        "token/response_length/max": values["max_length"],
        "token/response_length/min": values["min_length"],
        "token/total_response_length/clip": round(values["truncated"] * responses),
        "token/right_response_length/mean": right if correct else float("nan"),
        "token/error_response_length/mean": values.get("length_incorrect", 1.1 * values["length"]),
        "critic/correct/mean": correct / responses,
        "critic/score_distribution/correct_samples_ratio": correct / responses,
        "critic/rewards/mean": 0.0,
        "group/all_correct_groups_ratio": values["all_correct"],
        "group/all_incorrect_groups_ratio": values["all_incorrect"],
        "group/mixed_groups_ratio": values["mixed"],
        "mask/final_mask_sum_eq_0": 0,
        **_shared_keys(values),
    }


def roll(run: LoggedRun, directory: Path) -> Path:
    """The driver's log with `track_with: stdout`, which holds each step twice."""
    lines = []
    for step in range(run.steps):
        values = run.at(step + 1)
        row = {
            **_rlvr_keys(values, run.prompts * run.group),
            "system/global_step": step,
            "system/step": step,
        }
        if (score := heldout(run, step + 1)) is not None:
            row |= {f"val_correct/{name}/mean": score for name in ("all", "aime")}
        prefix = "[2026-07-01 12:00:00] [rlvr_pipeline.py (612)] [INFO] [DRIVER 0 / 1][PID 4242]"
        tracked = {key.partition("@")[0]: value for key, value in row.items()}
        examples = [{"prompt": "How many?", "response": "{3: 4, 5: 6}"}]
        lines += [f"{prefix} pipeline step {step} start...\n",
                  f"{prefix} metrics_tag: {json.dumps({'step': step, 'metrics': tracked})}\n",
                  f"{prefix} {json.dumps(examples)}\n",
                  f"{prefix} {json.dumps(row)}\n",
                  f"{prefix} pipeline step {step} finished\n"]  # fmt: skip
    path = directory / "log_rank_DRIVER_0_1.log"
    path.write_text("".join(lines))
    return path


def roll_agentic(run: LoggedRun, directory: Path) -> Path:
    """TensorBoard events of the agentic pipeline."""

    def keys(values: Values) -> Row:
        shared = {key.partition("@")[0]: value for key, value in _shared_keys(values).items()}
        return {
            **shared,
            "rollout/score/mean": values["reward"],
            "rollout/response_length/mean": values["length"],
            "tokens/response_length/mean": values["length"],
            "tokens/response_length/max": values["max_length"],
            "tokens/response_length/min": values["min_length"],
            "tokens/prompt_length/mean": values["prompt_length"],
            "tokens/non_prompt_length/mean": 1.2 * values["length"],
            **given(values, {"critic/kl": "kl"}),
            "critic/kl_coef": 0.0,
            "env/FrozenLake/action_is_valid": 1 - values.get("invalid_actions", 0.03),
            "env/FrozenLake/num_actions": values.get("turns", 4.0),
            "time/step_ref_log_probs_values_reward": values["seconds"] / 20,
            "time/step_rollout": values.get("rollout_seconds", values["seconds"] / 2),
            "time/step_total": values["seconds"],
            "system/tps": 9000.0,
        }

    return write_events(directory, ((step - 1, row) for step, row in rows(run, keys)))
