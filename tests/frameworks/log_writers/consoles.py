"""Frameworks whose log is the output of the console: OpenRLHF, slime and miles, AReaL."""

from __future__ import annotations

import json
from pathlib import Path

from tests.frameworks.log_writers.base import LoggedRun, Row, Values, given, heldout, rows


def _openrlhf_keys(values: Values) -> Row:
    return {
        "policy_loss": values["loss"],
        "actor_lr": values["learning_rate"],
        "actor_grad_norm": values["grad_norm"],
        "ppo_clip_ratio": values["clipped"],
        "ppo_kl": values["old_kl"],
        **given(values, {"vllm_kl": "engine_k1" if "engine_k1" in values else "engine_kl"}),
        "entropy_loss": values["entropy"],
        **given(values, {"kl": "kl"}),
        "score": values["reward"],
        "reward": values["reward"],
        "group_reward_std": values.get("group_std", values["reward_std"] * values["mixed"]),
        "response_length": values["length"],
        "total_length": values["length"] + values["prompt_length"],
        "truncated": values["truncated"],
        "rollout/reward_mean": values["reward"],
        "rollout/reward_std": values["reward_std"],
        "rollout/response_length_mean": values["length"],
        "rollout/truncated_rate": values["truncated"],
        "rollout/num_samples": 512.0,
        "timing/step_total": values["seconds"],
        **given(
            values, {"timing/generation": "rollout_seconds", "timing/ppo_train": "learn_seconds"}
        ),
    }


def openrlhf(run: LoggedRun, directory: Path) -> Path:
    """Console lines with a printed dict."""
    prefix = "INFO 07-01 12:00:00 ppo_trainer.py:123] ✨ Global step"
    lines = []
    for step, row in rows(run, _openrlhf_keys):
        if (score := heldout(run, step)) is not None:
            row["eval/eval_math_pass1"] = score
        lines.append(f"{prefix} {step}: {row}\n")
    path = directory / "train.log"
    path.write_text("".join(lines))
    return path


def _slime_perf(values: Values, prompts: int) -> Row:
    counts: dict[str, float] = {}
    for reward, share in (
        (values.get("incorrect_reward", 0.0), values["all_incorrect"]),
        (values.get("correct_reward", 1.0), values["all_correct"]),
        (values.get("other_reward", 0.5), values.get("other_uniform", 0.0)),
    ):
        name = f"{round(reward, 1)}"
        counts[name] = counts.get(name, 0.0) + share
    return {
        "rollout/response_len/mean": values["length"],
        "rollout/response_len/max": values["max_length"],
        "rollout/response_len/min": values["min_length"],
        **{f"rollout/zero_std/count_{reward}": round(share * prompts)
           for reward, share in counts.items() if round(share * prompts)},
        "rollout/repetition_frac": values.get("repetition", 0.0),
        "rollout/truncated_ratio": values["truncated"],
        "perf/rollout_time": values.get("rollout_seconds", values["seconds"] / 2),
    }  # fmt: skip


def _slime_data(values: Values) -> Row:
    log_prob = -values["entropy"]
    row = {
        "rollout/raw_reward": values["reward"],
        "rollout/rewards": 0.0,
        "rollout/truncated": values["truncated"],
        "rollout/log_probs": log_prob,
    }
    if "engine_kl" in values:
        gap = values.get("engine_k1", values["engine_kl"])
        row["rollout/rollout_log_probs"] = log_prob + gap
    return row


def _slime_train(values: Values, rollout: int) -> Row:
    return {
        "train/loss": values["loss"],
        "train/entropy_loss": values["entropy"],
        "train/pg_clipfrac": values["clipped"],
        "train/ppo_kl": values["old_kl"],
        **given(
            values,
            {"train/train_rollout_logprob_abs_diff": "logprob_diff", "train/kl_loss": "kl"},
        ),
        "train/grad_norm": values["grad_norm"],
        "train/lr-pg_0": values["learning_rate"],
        "train/step": rollout,
    }


def slime(
    run: LoggedRun,
    directory: Path,
    places: tuple[str, str, str] = (
        "(RolloutManager pid=1) [2026-07-01 12:00:00] rollout.py:1",
        "(RolloutManager pid=1) [2026-07-01 12:00:00] data.py:2",
        "(RolloutManager pid=1) [2026-07-01 12:00:00] model.py:3",
    ),
) -> Path:
    """Three console lines for each rollout, and the arguments in a file."""
    lines = []
    for step in range(1, run.steps + 1):
        values, rollout = run.at(step), step - 1
        lines += [
            f"{places[0]} - perf {rollout}: {_slime_perf(values, run.prompts)}\n",
            f"{places[1]} - rollout {rollout}: {_slime_data(values)}\n",
            f"{places[2]} - step {rollout}: {_slime_train(values, rollout)}\n",
        ]
        if (score := heldout(run, step)) is not None:
            scores = {"eval/aime": score, "eval/aime-truncated_ratio": values["truncated"]}
            lines.append(f"{places[0]} - eval {rollout}: {scores}\n")
    path = directory / "train.log"
    path.write_text("".join(lines))
    sizes = {"rollout_batch_size": run.prompts, "n_samples_per_prompt": run.group}
    (directory / "args.json").write_text(json.dumps(sizes))
    return path


def miles(run: LoggedRun, directory: Path) -> Path:
    """slime's lines with the colours of Ray and miles' modules."""
    stamp = "\033[0m [2026-07-01 12:00:00]"
    return slime(
        run,
        directory,
        (
            f"\033[36m(RolloutManager pid=11){stamp} rollout.py:1132",
            f"\033[36m(MegatronTrainRayActor pid=22){stamp} log_utils.py:53",
            f"\033[36m(MegatronTrainRayActor pid=22){stamp} model.py:670",
        ),
    )


def areal(
    run: LoggedRun, directory: Path, scope: str = "ppo_actor", update: str = "update/"
) -> Path:
    """The table of statistics that the console prints after each step."""

    def keys(values: Values) -> Row:
        actor, updated = f"{scope}/", f"{scope}/{update}"
        sequence = values["length"] + values["prompt_length"]
        prompt = values["prompt_length"]
        lengths = {
            f"{actor}{name}_seq_len/avg": values[f"length_{name}"] + prompt
            for name in ("correct", "incorrect")
            if f"length_{name}" in values
        }
        return {
            f"{actor}task_reward/avg": values["reward"],
            f"{actor}task_reward/max": values.get("max_reward", 1.0),
            f"{actor}task_reward/min": values.get("min_reward", 0.0),
            f"{actor}advantages/max": values["max_advantage"],
            f"{actor}advantages/min": values["min_advantage"],
            f"{actor}seq_len/avg": sequence,
            f"{actor}prompt_len/avg": prompt,
            **lengths,
            f"{actor}no_eos_ratios/avg": max(values["truncated"], 1 / 512),
            f"{updated}entropy/avg": values["entropy"],
            f"{updated}importance_weight/avg": 1.0,
            f"{updated}clip_ratio/avg": values["clipped"],
            **given(
                values,
                {
                    f"{updated}behave_imp_weight/avg": "weight",
                    f"{updated}compute_logp/kl_div_direct/avg": "engine_k1",
                    f"{updated}compute_logp/kl_div_dual/avg": "engine_kl",
                    f"{updated}version_stats/sample_staleness_theta_avg": "staleness",
                    f"{updated}version_stats/sample_staleness_theta_max": "max_staleness",
                },
            ),
            f"{updated}actor_loss/avg": values["loss"],
            f"{updated}grad_norm": values["grad_norm"],
            f"{updated}lr": values["learning_rate"],
            f"{updated}update_successful": 1.0 - values.get("skipped", 0.0),
            "timeperf/train_step": values.get("learn_seconds", values["seconds"]),
        }

    lines = []
    for step, row in rows(run, keys):
        lines.append(f"Epoch 1/1 Step {step}/{run.steps} Train step {step}/{run.steps} done.\n")
        lines += [f"│ {key} │ {value:.4e} │\n" for key, value in row.items()]
    path = directory / "trainer.log"
    path.write_text("".join(lines))
    (directory / "config.json").write_text(json.dumps({"gconfig": {"max_new_tokens": run.limit}}))
    return path


def areal_older(run: LoggedRun, directory: Path) -> Path:
    """The layout before version 1, without a scope for the update."""
    return areal(run, directory, "grpo_actor", "")
