"""verl's trainers, its early version, and rLLM, which adds keys to those of verl."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

from tests.frameworks.log_writers.base import (
    LoggedRun,
    Row,
    Values,
    given,
    heldout,
    rows,
    write_lines,
)

_CORE = {
    "actor/pg_loss": "loss",
    "actor/pg_clipfrac": "clipped",
    "actor/ppo_kl": "old_kl",
    "actor/kl_loss": "kl",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "learning_rate",
    "critic/score/mean": "reward",
    "critic/rewards/mean": "reward",
    "critic/advantages/max": "max_advantage",
    "critic/advantages/min": "min_advantage",
    "response_length/mean": "length",
    "response_length/max": "max_length",
    "response_length/min": "min_length",
    "response_length/clip_ratio": "truncated",
    "prompt_length/mean": "prompt_length",
}
_MISMATCH = {
    "training/rollout_probs_diff_mean": "prob_diff",
    "training/rollout_actor_probs_pearson_corr": "pearson",
    "rollout_corr/kl": "engine_k1",
    "rollout_corr/k3_kl": "engine_kl",
    "rollout_corr/chi2_token": "engine_chi2",
}
_LATER = {
    "num_turns/mean": "turns",
    "tool_call_counts/mean": "tool_calls",
    "rollout/moe/max_vio/avg": "load_violation",
}


def _core(values: Values) -> Row:
    return {
        **given(values, _CORE),
        "critic/score/max": values.get("max_reward", 1.0),
        "critic/score/min": values.get("min_reward", 0.0),
        "critic/advantages/mean": values.get("mean_advantage", 0.0),
        "prompt_length/clip_ratio": 0.0,
        "timing_s/gen": values.get("rollout_seconds", values["seconds"] / 2),
    }


def _keys(values: Values) -> Row:
    row = {
        "actor/entropy": values["entropy"],
        "actor/pg_clipfrac_lower": 0.0,
        **_core(values),
        "response/aborted_ratio": values.get("aborted", 0.0),
        **given(values, {**_MISMATCH, **_LATER}),
        "perf/time_per_step": values["seconds"],
    }
    if "prob_diff" in values:
        largest = values.get("prob_diff_max", min(10 * values["prob_diff"], 1.0))
        row["training/rollout_probs_diff_max"] = largest
    return row


def _early_keys(values: Values) -> Row:
    row = _core(values)
    if "kl" in values:
        row |= {"critic/kl": values["kl"], "critic/kl_coeff": 0.001}
        row |= {"actor/kl_coef": 0.001}
    return {"actor/entropy_loss": values["entropy"], **row, "timing_s/step": values["seconds"]}


def _rllm_keys(values: Values) -> Row:
    return {
        **_keys(values),
        "reward/default/mean": values["reward"],
        "reward/default/max": values.get("max_reward", 1.0),
        "reward/default/min": values.get("min_reward", 0.0),
        "advantage/default/mean": values.get("mean_advantage", 0.0),
        "advantage/default/fraction_zero": values["zero_variance"],
        "batch/default/fractions/too_hard": values["all_incorrect"],
        "batch/default/fractions/too_easy": values["all_correct"],
        "batch/default/fractions/effective": values["mixed"],
        "batch/termination_reason/max_response_length_exceeded": values["truncated"],
        "batch/termination_reason/env_done": 1 - values["truncated"],
        "batch/termination_reason/error": values.get("errors", 0.0),
        **given(values, {"batch/steps_per_traj/mean": "turns"}),
    }


def _console(
    run: LoggedRun,
    directory: Path,
    keys: Callable[[Values], Row],
    validation: tuple[str, ...],
    prefix: str = "(TaskRunner pid=4242) ",
) -> Path:
    lines = []
    for step, row in rows(run, keys):
        score = heldout(run, step)
        scores = {} if score is None else dict.fromkeys(validation, score)
        pairs = " - ".join(f"{key}:{value!r}" for key, value in {**row, **scores}.items())
        lines.append(f"{prefix}step:{step} - {pairs}\n")
    path = directory / "train.log"
    path.write_text("".join(lines))
    return path


_VALIDATION = ("val-core/openai/gsm8k/acc/mean@1", "val-core/math/acc/mean@1")


def verl(run: LoggedRun, directory: Path) -> Path:
    """Console lines of trainer V0, through Ray."""
    return _console(run, directory, _keys, _VALIDATION)


def verl_early(run: LoggedRun, directory: Path) -> Path:
    """Console lines of the versions of early 2025."""
    return _console(run, directory, _early_keys, ("val/test_score/openai/gsm8k",), prefix="")


def verl_v1(run: LoggedRun, directory: Path) -> Path:
    """The JSON lines of trainer V1, which pads to the longest response of each batch."""
    lines = []
    for step, row in rows(run, _keys):
        values = run.at(step)
        floor = 1 / (run.prompts * run.group)
        row["response_length/clip_ratio"] = max(row["response_length/clip_ratio"], floor)
        staleness = "training/off_policy/trajectory_staleness"
        row[f"{staleness}/mean"] = values.get("staleness", 0.5)
        row[f"{staleness}_worst/max"] = values.get("max_staleness", 1.0)
        if (score := heldout(run, step)) is not None:
            row["val-core/openai/gsm8k/acc/mean@1"] = score
        data = {key: value if math.isfinite(value) else None for key, value in row.items()}
        lines.append({"step": step, "data": data})
    path = write_lines(directory / "run.jsonl", lines)
    config = {"data": {"max_response_length": run.limit}, "trainer": {"use_v1": True}}
    (directory / "config.json").write_text(json.dumps(config))
    return path


def rllm(run: LoggedRun, directory: Path) -> Path:
    """Console lines of rLLM on verl."""
    return _console(run, directory, _rllm_keys, ("val/math/pass@1",))
