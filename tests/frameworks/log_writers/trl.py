"""TRL and ms-swift."""

from __future__ import annotations

import json
from pathlib import Path

from tests.frameworks.log_writers.base import (
    LoggedRun,
    Row,
    Values,
    components,
    given,
    heldout,
    rows,
    write_lines,
)


def _keys(values: Values) -> Row:
    parts = components(values)
    return {
        "loss": values["loss"],
        "grad_norm": values["grad_norm"],
        "learning_rate": values["learning_rate"],
        "num_tokens": 1e6,
        "completions/mean_length": values["length"],
        "completions/min_length": values["min_length"],
        "completions/max_length": values["max_length"],
        "completions/clipped_ratio": values["truncated"],
        "completions/mean_terminated_length": values.get(
            "terminated_length", 0.8 * values["length"]
        ),
        **{f"rewards/{name}/mean": mean for name, (mean, _) in parts.items()},
        **{f"rewards/{name}/std": std for name, (_, std) in parts.items()},
        "reward": values["reward"],
        "reward_std": values["reward_std"],
        "frac_reward_zero_std": values["zero_variance"],
        **given(
            values,
            {"kl": "kl"},
        ),
        "entropy": values["entropy"],
        "clip_ratio/low_mean": values.get("clip_low", values["clipped"] / 2),
        "clip_ratio/high_mean": values.get("clip_high", values["clipped"] / 2),
        "clip_ratio/region_mean": values["clipped"],
        "step_time": values["seconds"],
        "epoch": 0.1,
    }


def _trl_keys(values: Values) -> Row:
    row = _keys(values)
    names = {
        "aux_loss": "aux_loss",
        "tools/call_frequency": "tool_calls",
        "tools/failure_frequency": "tool_failures",
    }
    row |= given(values, names)
    if "logprob_diff" in values:
        row["sampling/sampling_logp_difference/mean"] = values["logprob_diff"]
        largest = values.get("logprob_diff_max", 8 * values["logprob_diff"])
        row["sampling/sampling_logp_difference/max"] = largest
        row["sampling/importance_sampling_ratio/mean"] = values["weight"]
    return row


def trl(run: LoggedRun, directory: Path) -> Path:
    """`trainer_state.json` of a checkpoint, with evaluations."""
    history: list[dict[str, float]] = []
    for step, row in rows(run, _trl_keys):
        history.append({**row, "step": step})
        if (score := heldout(run, step)) is not None:
            history.append({"eval_reward": score, "step": step})
    history.append(
        {"train_runtime": 3600.0, "train_loss": 0.5, "total_flos": 0.0, "step": run.steps}
    )
    path = directory / "trainer_state.json"
    path.write_text(json.dumps({"global_step": run.steps, "log_history": history}))
    return path


def _swift_keys(values: Values) -> Row:
    row = _keys(values)
    row["entropy/mean"] = row.pop("entropy")
    names = {
        "rollout_correction/kl": "engine_k1",
        "rollout_correction/k3_kl": "engine_kl",
        "rollout_correction/chi2_token": "engine_chi2",
        "rollout_correction/is_weight_mean": "weight",
        "num_turns": "turns",
    }
    return row | given(values, names)


def ms_swift(run: LoggedRun, directory: Path) -> Path:
    """`logging.jsonl`, which ends with two summaries of the run."""
    lines: list[dict[str, object]] = []
    for step, row in rows(run, _swift_keys):
        more = {"global_step/max_steps": f"{step}/{run.steps}", "remaining_time": "1h 2m 3s",
                "memory(GiB)": 40.0, "train_speed(s/it)": 60.0}  # fmt: skip
        lines.append({**row, **more})
        if (score := heldout(run, step)) is not None:
            lines.append({"eval_reward": score, **more})
    end = {"global_step/max_steps": f"{run.steps}/{run.steps}"}
    lines.append({"train_runtime": 3600.0, "train_loss": 0.5, **end})
    lines.append({"last_model_checkpoint": "out/checkpoint-60", "best_metric": 0.5,
                  "global_step": run.steps, "log_history": [{"loss": 1.0}]})  # fmt: skip
    return write_lines(directory / "logging.jsonl", lines)
