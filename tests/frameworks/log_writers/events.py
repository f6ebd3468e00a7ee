"""Frameworks that write TensorBoard events: NeMo RL and SkyRL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def _evaluated(
    run: LoggedRun, keys: Callable[[Values], Row], validation: str
) -> Iterator[tuple[int, Row]]:
    for step, row in rows(run, keys):
        if (score := heldout(run, step)) is not None:
            row[validation] = score
        yield step, row


def _nemo_keys(values: Values) -> Row:
    row = {
        "train/loss": values["loss"],
        "train/grad_norm": values["grad_norm"],
        "train/lr": values["learning_rate"],
        "train/reward": values["reward"],
        "train/approx_entropy": values.get("sampled_entropy", values["entropy"]),
        "train/probs_ratio": 1.0,
        "train/baseline_reward/pct_0": 100 * values["all_incorrect"],
        "train/baseline_reward/pct_1": 100 * values["all_correct"],
        "train/baseline_reward/pct_mixed": 100 * values["mixed"],
        "train/advantages/max": values["max_advantage"],
        "train/advantages/min": values["min_advantage"],
        "train/advantages/mean": values.get("mean_advantage", 0.0),
        "train/mean_gen_tokens_per_sample": values["length"],
        "train/max_gen_tokens_per_sample": values["max_length"],
        "train/truncation_rate": values["truncated"],
        "timing/train/total_step_time": values["seconds"],
    }
    names = {
        "train/kl_penalty": "kl",
        "train/gen_kl_error": "engine_kl",
        "train/sampling_importance_ratio": "weight",
        "train/mean_prompt_length": "prompt_length",
        "train/avg_trajectory_age": "staleness",
        "train/probs_ratio_max": "max_ratio",
        "train/r3/routed_experts_fallback_token_route_fraction": "replay_fallback",
        "train/dynamic_sampling_num_gen_batches": "generated_per_kept",
    }
    row |= given(values, names)
    if "logprob_diff" in values:
        row["train/token_mult_prob_error"] = 1 + values["logprob_diff"]
        row["train/max_seq_mult_prob_error"] = 1 + 3 * values["logprob_diff"]
    return row


def nemo_rl(run: LoggedRun, directory: Path) -> Path:
    """TensorBoard events."""
    return write_events(directory, _evaluated(run, _nemo_keys, "validation/accuracy"))


def skyrl(run: LoggedRun, directory: Path) -> Path:
    """TensorBoard events."""

    def keys(values: Values) -> Row:
        return {
            "policy/policy_entropy": values["entropy"],
            "policy/final_loss": values["loss"],
            "policy/grad_norm": values["grad_norm"],
            "policy/policy_lr": values["learning_rate"],
            "policy/loss_metrics/clip_ratio": values["clipped"],
            "reward/avg_raw_reward": values["reward"],
            f"reward/avg_pass_at_{run.group}": 1 - values["all_incorrect"],
            "generate/avg_num_tokens": values["length"],
            "generate/max_num_tokens": values["max_length"],
            "generate/min_num_tokens": values["min_length"],
            "timing/step": values["seconds"],
            **given(
                values,
                {
                    "policy/policy_kl": "kl",
                    "policy/rollout_train_logprobs_abs_diff_mean": "logprob_diff",
                    "policy/rollout_train_logprobs_abs_diff_max": "logprob_diff_max",
                    "generate/avg_tokens_non_zero_rewards": "length_correct",
                    "generate/avg_tokens_zero_rewards": "length_incorrect",
                    "async/staleness_mean": "staleness",
                    "async/staleness_max": "max_staleness",
                    "timing/generate": "rollout_seconds",
                    "timing/policy_train": "learn_seconds",
                },
            ),
        }

    return write_events(directory, _evaluated(run, keys, "eval/math/avg_score"))
