"""Frameworks and scripts that write JSON lines."""

from __future__ import annotations

import math
from pathlib import Path

from tests.frameworks.log_writers.base import (
    LoggedRun,
    Row,
    Values,
    components,
    given,
    heldout,
    rows,
    write_events,
    write_lines,
)


def _orchestrator_row(values: Values) -> Row:
    agent = "train/agg/all/default"
    names = {
        "train/agg/all/num_turns/mean": "turns",
        "train/agg/all/cancelled/mean": "aborted",
        f"{agent}/reward/max": "max_reward",
        f"{agent}/reward/min": "min_reward",
        "off_policy/max": "max_staleness",
    }
    return {
        f"{agent}/reward/mean": values["reward"],
        f"{agent}/is_truncated/mean": values["truncated"],
        f"{agent}/solved_none": values["all_incorrect"],
        f"{agent}/solved_all": values["all_correct"],
        "train/agg/all/num_output_tokens/mean": values["length"],
        "train/agg/all/num_output_tokens/max": values["max_length"],
        "train/agg/all/has_error/mean": values.get("errors", 0.0),
        "off_policy/mean": values.get("staleness", 0.5),
        **given(values, names),
    }


def prime_rl(run: LoggedRun, directory: Path) -> Path:
    """`metrics.jsonl`, to which trainer and orchestrator write."""
    lines: list[dict[str, float]] = []
    for step in range(1, run.steps + 1):
        values = run.at(step)
        first = {"step": step, **_orchestrator_row(values)}
        if (score := heldout(run, step)) is not None:
            first["eval/aime/all/default/avg@4"] = score
        lines.append(first)
        lines.append({
            "step": step,
            "entropy/all/mean": values["entropy"],
            "mismatch_kl/all/mean": values["engine_kl"],
            "is_masked/mean": values["far_moved" if "far_moved" in values else "clipped"],
            "loss/mean": values["loss"],
            "optim/grad_norm": values["grad_norm"],
            "optim/lr": values["learning_rate"],
            "time/step": values["seconds"],
            **given(values, {"max_vio/mean": "load_violation"}),
        })  # fmt: skip
    lines = [{key: value for key, value in line.items() if math.isfinite(value)} for line in lines]
    return write_lines(directory / "metrics.jsonl", lines)


def _open_instruct_keys(values: Values, prompts: int) -> Row:
    kept = round(prompts * values["mixed"])
    solved = values.get("accuracy", values["reward"])
    among_kept = (solved - values["all_correct"]) / max(values["mixed"], 1 / prompts)
    among_kept = min(max(among_kept, 0.1), 0.9)
    names = {
        "objective/kl2_avg": "kl",
        "debug/vllm_vs_local_logprob_diff_mean": "logprob_diff",
        "debug/vllm_vs_local_logprob_diff_max": "logprob_diff_max",
        "val/rho_weight": "weight",
        "val/sequence_lengths_solved": "length_correct",
        "val/sequence_lengths_unsolved": "length_incorrect",
        "num_steps_off_policy": "staleness",
        "tools/aggregate/avg_calls_per_rollout": "tool_calls",
        "tools/aggregate/failure_rate": "tool_failures",
    }
    return {
        "scores": values.get("kept_reward", 10 * among_kept),
        "objective/verifiable_correct_rate": values.get("kept_accuracy", among_kept),
        "policy/entropy_avg": values["entropy"],
        "policy/clipfrac_avg": values["clipped"],
        "loss/total_avg": values["loss"],
        "val/ratio": 1.0,
        "val/sequence_lengths": values["length"],
        "val/sequence_lengths_max": values["max_length"],
        "val/sequence_lengths_min": values["min_length"],
        "val/stop_rate": 1 - values["truncated"],
        "val/advantages_max": values["max_advantage"],
        "val/advantages_min": values["min_advantage"],
        "real_batch_size_ratio": kept / prompts,
        "batch/filtered_prompts": prompts - kept,
        "batch/filtered_prompts_zero": round(prompts * values["all_incorrect"]),
        "batch/filtered_prompts_solved": round(prompts * values["all_correct"]),
        "batch/filtered_prompts_pct": (prompts - kept) / prompts,
        "batch/total_prompts": kept,
        "optim/grad_norm": values["grad_norm"],
        "lr": values["learning_rate"],
        "time/total": values["seconds"],
        **given(values, names),
    }


def open_instruct(run: LoggedRun, directory: Path) -> Path:
    """A history of W&B, exported as JSON lines: `global_step` counts episodes."""
    batch = run.prompts * run.group
    lines = []
    for step, row in rows(run, lambda values: _open_instruct_keys(values, run.prompts)):
        if (score := heldout(run, step)) is not None:
            row["eval/scores"] = 10 * score
        counts = {"training_step": step, "global_step": step * batch, "episode": step * batch}
        lines.append({**counts, **row})
    return write_lines(directory / "history.jsonl", lines)


def open_instruct_events(run: LoggedRun, directory: Path) -> Path:
    """Older versions write TensorBoard events, whose own step counts episodes."""
    batch = run.prompts * run.group
    rows_of_run = rows(run, lambda values: _open_instruct_keys(values, run.prompts))
    return write_events(
        directory,
        ((step * batch, {**row, "training_step": float(step)}) for step, row in rows_of_run),
    )


def tinker_cookbook(run: LoggedRun, directory: Path) -> Path:
    """`metrics.jsonl`."""
    lines = []
    for step in range(run.steps):
        values = run.at(step + 1)
        turns = values.get("turns", 1.0)
        row = {
            "step": step,
            "progress/done_frac": (step + 1) / run.steps,
            "env/all/reward/total": values["reward"],
            "env/all/ac_tokens_per_turn": values["length"] / turns,
            "env/all/turns_per_episode": turns,
            "env/all/by_group/frac_mixed": values["mixed"],
            "env/all/by_group/frac_all_good": values["all_correct"],
            "env/all/by_group/frac_all_bad": values["all_incorrect"],
            "optim/entropy": values.get("sampled_entropy", values["entropy"]),
            "optim/kl_sample_train_v1": values.get("engine_k1", values["engine_kl"]),
            "optim/kl_sample_train_v2": values.get("engine_k2", values["engine_kl"]),
            "optim/lr": values["learning_rate"],
            "time/total": values["seconds"],
        }
        row |= given(values, {"env/all/correct": "accuracy"})
        if (score := heldout(run, step + 1)) is not None:
            row["test/env/all/reward/total"] = score
        lines.append(row)
    return write_lines(directory / "metrics.jsonl", lines)


_PLAIN = {
    "mean_reward": "reward",
    "reward_min": "min_reward",
    "reward_max": "max_reward",
    "token_entropy": "entropy",
    "avg_response_token_length": "length",
    "max_response_length": "max_length",
    "frac_truncated": "truncated",
    "zero_advantage_frac": "zero_variance",
    "fraction_clipped": "clipped",
    "kl_ref": "kl",
    "logprob_abs_diff": "logprob_diff",
    "gradient_norm": "grad_norm",
    "actor_lr": "learning_rate",
    "grpo_loss": "loss",
    "seconds_per_step": "seconds",
    "tool_error_rate": "tool_failures",
    "invalid_action_rate": "invalid_actions",
    "env_error_rate": "errors",
    "aborted_rate": "aborted",
    "avg_turns": "turns",
    "staleness_mean": "staleness",
    "repetition_rate": "repetition",
    "aux_loss": "aux_loss",
}


def plain_names(run: LoggedRun, directory: Path) -> Path:
    """A custom script's JSON lines with names that small teams choose."""

    def keys(values: Values) -> Row:
        parts = components(values)
        named = {f"{name}_reward": mean for name, (mean, _) in parts.items() if len(parts) > 1}
        accuracy = values.get("accuracy", values["reward"])
        return {**given(values, _PLAIN), "answer_accuracy": accuracy, **named}

    lines = []
    for step, row in rows(run, keys):
        if (score := heldout(run, step)) is not None:
            row["eval_accuracy"] = score
        lines.append({"iteration": step, **row})
    return write_lines(directory / "train_log.jsonl", lines)
