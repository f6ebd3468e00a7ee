"""Logs of courses, in the file format and with the keys of each framework."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from tests.frameworks.courses import GROUP, PROMPTS, STEPS, Course

Values = Mapping[str, float]
Row = dict[str, float]


def _rows(course: Course, keys: Callable[[Values], Row]) -> Iterator[tuple[int, Row]]:
    return ((step, keys(course.at(step))) for step in range(1, STEPS + 1))


def _evaluated(step: int) -> bool:
    return step % 10 == 0


def _trl_keys(values: Values) -> Row:
    return {
        "loss": values["loss"],
        "grad_norm": values["grad_norm"],
        "learning_rate": values["learning_rate"],
        "num_tokens": 1e6,
        "completions/mean_length": values["length"],
        "completions/min_length": values["min_length"],
        "completions/max_length": values["max_length"],
        "completions/clipped_ratio": values["truncated"],
        "completions/mean_terminated_length": 0.8 * values["length"],
        "rewards/correct/mean": values["reward"],
        "rewards/correct/std": values["reward_std"],
        "reward": values["reward"],
        "reward_std": values["reward_std"],
        "frac_reward_zero_std": values["zero_variance"],
        "sampling/sampling_logp_difference/mean": values["logprob_diff"],
        "sampling/sampling_logp_difference/max": 8 * values["logprob_diff"],
        "sampling/importance_sampling_ratio/mean": values["weight"],
        "kl": values["kl"],
        "entropy": values["entropy"],
        "clip_ratio/low_mean": values["clipped"] / 2,
        "clip_ratio/high_mean": values["clipped"] / 2,
        "clip_ratio/region_mean": values["clipped"],
        "step_time": values["seconds"],
        "epoch": 0.1,
    }


def trl(course: Course, directory: Path) -> Path:
    """`trainer_state.json` of a checkpoint, with an evaluation every ten steps."""
    history: list[dict[str, float]] = []
    for step, row in _rows(course, _trl_keys):
        history.append({**row, "step": step})
        if _evaluated(step):
            history.append({"eval_reward": course.at(step)["heldout"], "step": step})
    history.append({"train_runtime": 3600.0, "train_loss": 0.5, "total_flos": 0.0, "step": STEPS})
    path = directory / "trainer_state.json"
    path.write_text(json.dumps({"global_step": STEPS, "log_history": history}))
    return path


def ms_swift(course: Course, directory: Path) -> Path:
    """`logging.jsonl`, which ends with two summaries of the run."""
    path = directory / "logging.jsonl"
    lines = []
    for step, row in _rows(course, _trl_keys):
        swift = {key: value for key, value in row.items() if not key.startswith("sampling/")}
        values = course.at(step)
        swift |= {
            "entropy/mean": swift.pop("entropy"),
            "rollout_correction/k3_kl": values["engine_kl"],
            "rollout_correction/is_weight_mean": values["weight"],
        }
        more = {"global_step/max_steps": f"{step}/{STEPS}", "remaining_time": "1h 2m 3s",
                "memory(GiB)": 40.0, "train_speed(s/it)": 60.0}  # fmt: skip
        lines.append({**swift, **more})
        if _evaluated(step):
            lines.append({"eval_reward": values["heldout"], **more})
    end = {"global_step/max_steps": f"{STEPS}/{STEPS}"}
    lines.append({"train_runtime": 3600.0, "train_loss": 0.5, **end})
    lines.append({"last_model_checkpoint": "out/checkpoint-60", "best_metric": 0.5,
                  "global_step": STEPS, "log_history": [{"loss": 1.0}]})  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _verl_keys(values: Values) -> Row:
    return {
        "actor/entropy": values["entropy"],
        "actor/kl_loss": values["kl"],
        "actor/pg_loss": values["loss"],
        "actor/pg_clipfrac": values["clipped"],
        "actor/ppo_kl": values["old_kl"],
        "actor/pg_clipfrac_lower": 0.0,
        "actor/grad_norm": values["grad_norm"],
        "actor/lr": values["learning_rate"],
        "critic/score/mean": values["reward"],
        "critic/score/max": 1.0,
        "critic/score/min": 0.0,
        "critic/rewards/mean": values["reward"],
        "critic/advantages/mean": 0.0,
        "critic/advantages/max": values["max_advantage"],
        "critic/advantages/min": values["min_advantage"],
        "response_length/mean": values["length"],
        "response_length/max": values["max_length"],
        "response_length/min": values["min_length"],
        "response_length/clip_ratio": values["truncated"],
        "response/aborted_ratio": 0.0,
        "prompt_length/mean": values["prompt_length"],
        "prompt_length/clip_ratio": 0.0,
        "training/rollout_probs_diff_mean": values["prob_diff"],
        "training/rollout_probs_diff_max": min(10 * values["prob_diff"], 1.0),
        "rollout_corr/k3_kl": values["engine_kl"],
        "perf/time_per_step": values["seconds"],
        "timing_s/gen": values["seconds"] / 2,
    }


def verl(course: Course, directory: Path) -> Path:
    """Console lines of trainer V0, through Ray."""
    lines = []
    for step, row in _rows(course, _verl_keys):
        if _evaluated(step):
            for name in ("openai/gsm8k", "math"):
                row[f"val-core/{name}/acc/mean@1"] = course.at(step)["heldout"]
        pairs = " - ".join(f"{key}:{value!r}" for key, value in row.items())
        lines.append(f"(TaskRunner pid=4242) step:{step} - {pairs}\n")
    path = directory / "train.log"
    path.write_text("".join(lines))
    return path


def verl_v1(course: Course, directory: Path) -> Path:
    """The JSON lines of trainer V1, which pads to the longest response of each batch."""
    path = directory / "run.jsonl"
    lines = []
    for step, row in _rows(course, _verl_keys):
        row["response_length/clip_ratio"] = max(row["response_length/clip_ratio"], 1 / 512)
        row["training/off_policy/trajectory_staleness/mean"] = 0.5
        row["training/off_policy/trajectory_staleness_worst/max"] = 1.0
        lines.append(json.dumps({"step": step, "data": row}) + "\n")
    path.write_text("".join(lines))
    config = {"data": {"max_response_length": 2048}, "trainer": {"use_v1": True}}
    (directory / "config.json").write_text(json.dumps(config))
    return path


def openrlhf(course: Course, directory: Path) -> Path:
    """Console lines with a printed dict."""

    def keys(values: Values) -> Row:
        return {
            "policy_loss": values["loss"],
            "actor_lr": values["learning_rate"],
            "actor_grad_norm": values["grad_norm"],
            "ppo_clip_ratio": values["clipped"],
            "ppo_kl": values["old_kl"],
            "vllm_kl": values["engine_kl"],
            "entropy_loss": values["entropy"],
            "kl": values["kl"],
            "score": values["reward"],
            "reward": values["reward"],
            "group_reward_std": values["reward_std"] * values["mixed"],
            "response_length": values["length"],
            "total_length": values["length"] + values["prompt_length"],
            "truncated": 0.0,
            "rollout/reward_mean": values["reward"],
            "rollout/reward_std": values["reward_std"],
            "rollout/response_length_mean": values["length"],
            "rollout/truncated_rate": values["truncated"],
            "rollout/num_samples": 512.0,
            "timing/step_total": values["seconds"],
        }

    path = directory / "train.log"
    prefix = "INFO 07-01 12:00:00 ppo_trainer.py:123] ✨ Global step"
    path.write_text("".join(f"{prefix} {step}: {row}\n" for step, row in _rows(course, keys)))
    return path


def slime(course: Course, directory: Path) -> Path:
    """Three console lines for each rollout, and the arguments in a file."""
    lines = []
    for step in range(1, STEPS + 1):
        values, rollout = course.at(step), step - 1
        counts = {"0.0": values["all_incorrect"], "1.0": values["all_correct"]}
        perf = {
            "rollout/response_len/mean": values["length"],
            "rollout/response_len/max": values["max_length"],
            "rollout/response_len/min": values["min_length"],
            **{f"rollout/zero_std/count_{reward}": round(share * PROMPTS)
               for reward, share in counts.items() if round(share * PROMPTS)},
            "rollout/repetition_frac": 0.0,
            "rollout/truncated_ratio": values["truncated"],
            "perf/rollout_time": values["seconds"] / 2,
        }  # fmt: skip
        data = {
            "rollout/raw_reward": values["reward"],
            "rollout/rewards": 0.0,
            "rollout/truncated": values["truncated"],
            "rollout/log_probs": -values["entropy"],
            "rollout/rollout_log_probs": -values["entropy"] + values["engine_kl"],
        }
        train = {
            "train/loss": values["loss"],
            "train/entropy_loss": values["entropy"],
            "train/pg_clipfrac": values["clipped"],
            "train/ppo_kl": values["old_kl"],
            "train/train_rollout_logprob_abs_diff": values["logprob_diff"],
            "train/grad_norm": values["grad_norm"],
            "train/lr-pg_0": values["learning_rate"],
            "train/step": rollout,
        }
        place = "(RolloutManager pid=1) [2026-07-01 12:00:00]"
        lines += [f"{place} rollout.py:1 - perf {rollout}: {perf}\n",
                  f"{place} data.py:2 - rollout {rollout}: {data}\n",
                  f"{place} model.py:3 - step {rollout}: {train}\n"]  # fmt: skip
    path = directory / "train.log"
    path.write_text("".join(lines))
    sizes = {"rollout_batch_size": PROMPTS, "n_samples_per_prompt": GROUP}
    (directory / "args.json").write_text(json.dumps(sizes))
    return path


def _write_events(directory: Path, rows: Iterator[tuple[int, Row]]) -> Path:
    with SummaryWriter(str(directory)) as writer:
        for step, row in rows:
            for key, value in row.items():
                writer.add_scalar(key, value, step)
    (path,) = directory.glob("events.out.*")
    return path


def nemo_rl(course: Course, directory: Path) -> Path:
    """TensorBoard events."""

    def keys(values: Values) -> Row:
        return {
            "train/loss": values["loss"],
            "train/grad_norm": values["grad_norm"],
            "train/lr": values["learning_rate"],
            "train/reward": values["reward"],
            "train/approx_entropy": values["entropy"],
            "train/kl_penalty": values["kl"],
            "train/gen_kl_error": values["engine_kl"],
            "train/token_mult_prob_error": 1 + values["logprob_diff"],
            "train/max_seq_mult_prob_error": 1 + 3 * values["logprob_diff"],
            "train/sampling_importance_ratio": values["weight"],
            "train/probs_ratio": 1.0,
            "train/baseline_reward/pct_0": 100 * values["all_incorrect"],
            "train/baseline_reward/pct_1": 100 * values["all_correct"],
            "train/baseline_reward/pct_mixed": 100 * values["mixed"],
            "train/advantages/max": values["max_advantage"],
            "train/advantages/min": values["min_advantage"],
            "train/advantages/mean": 0.0,
            "train/mean_gen_tokens_per_sample": values["length"],
            "train/max_gen_tokens_per_sample": values["max_length"],
            "train/truncation_rate": values["truncated"],
            "timing/train/total_step_time": values["seconds"],
        }

    return _write_events(directory, _rows(course, keys))


def areal(
    course: Course, directory: Path, scope: str = "ppo_actor", update: str = "update/"
) -> Path:
    """The table of statistics that the console prints after each step."""

    def keys(values: Values) -> Row:
        actor, updated = f"{scope}/", f"{scope}/{update}"
        sequence = values["length"] + values["prompt_length"]
        return {
            f"{actor}task_reward/avg": values["reward"],
            f"{actor}task_reward/max": 1.0,
            f"{actor}task_reward/min": 0.0,
            f"{actor}advantages/max": values["max_advantage"],
            f"{actor}advantages/min": values["min_advantage"],
            f"{actor}seq_len/avg": sequence,
            f"{actor}prompt_len/avg": values["prompt_length"],
            f"{actor}no_eos_ratios/avg": max(values["truncated"], 1 / 512),
            f"{updated}entropy/avg": values["entropy"],
            f"{updated}importance_weight/avg": 1.0,
            f"{updated}clip_ratio/avg": values["clipped"],
            f"{updated}behave_imp_weight/avg": values["weight"],
            f"{updated}compute_logp/kl_div_dual/avg": values["engine_kl"],
            f"{updated}actor_loss/avg": values["loss"],
            f"{updated}grad_norm": values["grad_norm"],
            f"{updated}lr": values["learning_rate"],
            f"{updated}update_successful": 1.0,
            "timeperf/train_step": values["seconds"],
        }

    lines = []
    for step, row in _rows(course, keys):
        lines.append(f"Epoch 1/1 Step {step}/{STEPS} Train step {step}/{STEPS} done.\n")
        lines += [f"│ {key} │ {value:.4e} │\n" for key, value in row.items()]
    path = directory / "trainer.log"
    path.write_text("".join(lines))
    (directory / "config.json").write_text(json.dumps({"gconfig": {"max_new_tokens": 2048}}))
    return path


def areal_older(course: Course, directory: Path) -> Path:
    """The layout before version 1, without a scope for the update."""
    return areal(course, directory, "grpo_actor", "")


def skyrl(course: Course, directory: Path) -> Path:
    """TensorBoard events."""

    def keys(values: Values) -> Row:
        return {
            "policy/policy_entropy": values["entropy"],
            "policy/policy_kl": values["kl"],
            "policy/final_loss": values["loss"],
            "policy/grad_norm": values["grad_norm"],
            "policy/policy_lr": values["learning_rate"],
            "policy/loss_metrics/clip_ratio": values["clipped"],
            "policy/rollout_train_logprobs_abs_diff_mean": values["logprob_diff"],
            "reward/avg_raw_reward": values["reward"],
            f"reward/avg_pass_at_{GROUP}": 1 - values["all_incorrect"],
            "generate/avg_num_tokens": values["length"],
            "generate/max_num_tokens": values["max_length"],
            "generate/min_num_tokens": values["min_length"],
            "timing/step": values["seconds"],
        }

    return _write_events(directory, _rows(course, keys))


def _roll_keys(values: Values) -> Row:
    """RLVR's metrics; the console keeps how each is reduced."""
    responses = PROMPTS * GROUP
    correct = round(values["reward"] * responses)
    return {
        "time/step_total": values["seconds"],
        "time/step_generate": values["seconds"] / 2,
        "time/step_train": values["seconds"] / 4,
        "time/ref_log_probs_values": values["seconds"] / 20,
        "math_rule/scheduler/off_policy_ratio": 0.0,
        "math_rule/actor/final_mask_ratio": 1.0,
        "math_rule/critic/kl": values["kl"],
        "math_rule/critic/score/mean": values["reward"],
        "system/batch_size": responses,
        "token/prompt_length/mean": values["prompt_length"],
        "token/response_length/mean": values["length"],
        "token/response_length/max": values["max_length"],
        "token/response_length/min": values["min_length"],
        "token/total_response_length/clip": round(values["truncated"] * responses),
        "token/right_response_length/mean": 0.9 * values["length"] if correct else float("nan"),
        "token/error_response_length/mean": 1.1 * values["length"],
        "critic/entropy/mean": values["entropy"],
        "critic/correct/mean": correct / responses,
        "critic/score_distribution/correct_samples_ratio": correct / responses,
        "critic/score/mean": values["reward"],
        "critic/score/max": 1.0,
        "critic/score/min": 0.0,
        "critic/rewards/mean": 0.0,
        "critic/advantages/mean": 0.0,
        "critic/advantages/max": values["max_advantage"],
        "critic/advantages/min": values["min_advantage"],
        "group/all_correct_groups_ratio": values["all_correct"],
        "group/all_incorrect_groups_ratio": values["all_incorrect"],
        "group/mixed_groups_ratio": values["mixed"],
        "mask/final_mask_sum_eq_0": 0,
        "actor/ppo_ratio_clipfrac@sum": 2 * values["clipped"],
        "actor/clipfrac@sum": values["clipped"],
        "actor/ratio_mean@sum": 1.0,
        "actor/ratio_max@max": 1.9,
        "actor/ratio_min@min": 0.4,
        "actor/policykl@sum": -values["old_kl"],
        "actor/approxkl@sum": values["old_kl"],
        "actor/kl_loss@sum": values["kl"],
        "actor/total_loss@sum": values["loss"],
        "actor/valid_sample_ratio@sum": 1.0,
        "actor/train_infer_ratio_token_mean@sum": values["weight"],
        "actor/train_infer_ratio_geometric_mean@sum": math.exp(-values["engine_kl"]),
        "actor/train_infer_diff_token_mean@sum": -values["prob_diff"] / 2,
        "actor/lr": values["learning_rate"],
        "actor/backward_steps": 4,
        "actor_train/grad_norm": values["grad_norm"],
    }


def roll(course: Course, directory: Path) -> Path:
    """The driver's log with `track_with: stdout`, which holds each step twice."""
    lines = []
    for step in range(STEPS):
        values = course.at(step + 1)
        row = {**_roll_keys(values), "system/global_step": step, "system/step": step}
        if _evaluated(step + 1):
            row |= {f"val_correct/{name}/mean": values["heldout"] for name in ("all", "aime")}
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


def roll_agentic(course: Course, directory: Path) -> Path:
    """TensorBoard events of the agentic pipeline."""

    def keys(values: Values) -> Row:
        shared = {
            key.partition("@")[0]: value
            for key, value in _roll_keys(values).items()
            if key.startswith(("actor", "critic/score/", "critic/advantages/", "critic/entropy"))
        }
        return {
            **shared,
            "rollout/score/mean": values["reward"],
            "rollout/response_length/mean": values["length"],
            "tokens/response_length/mean": values["length"],
            "tokens/response_length/max": values["max_length"],
            "tokens/response_length/min": values["min_length"],
            "tokens/prompt_length/mean": values["prompt_length"],
            "tokens/non_prompt_length/mean": 1.2 * values["length"],
            "critic/kl": values["kl"],
            "critic/kl_coef": 0.0,
            "env/FrozenLake/action_is_valid": 0.97,
            "env/FrozenLake/num_actions": 4.0,
            "time/step_ref_log_probs_values_reward": values["seconds"] / 20,
            "time/step_rollout": values["seconds"] / 2,
            "time/step_total": values["seconds"],
            "system/tps": 9000.0,
        }

    return _write_events(directory, ((step - 1, row) for step, row in _rows(course, keys)))


def prime_rl(course: Course, directory: Path) -> Path:
    """`metrics.jsonl`, to which trainer and orchestrator write."""
    lines = []
    for step in range(1, STEPS + 1):
        values = course.at(step)
        agent = "train/agg/all/default"
        lines.append({
            "step": step,
            f"{agent}/reward/mean": values["reward"],
            f"{agent}/is_truncated/mean": values["truncated"],
            f"{agent}/solved_none": values["all_incorrect"],
            f"{agent}/solved_all": values["all_correct"],
            "train/agg/all/num_output_tokens/mean": values["length"],
            "train/agg/all/num_output_tokens/max": values["max_length"],
            "train/agg/all/has_error/mean": 0.0,
            "off_policy/mean": 0.5,
        })  # fmt: skip
        lines.append({
            "step": step,
            "entropy/all/mean": values["entropy"],
            "mismatch_kl/all/mean": values["engine_kl"],
            "is_masked/mean": values["clipped"],
            "loss/mean": values["loss"],
            "optim/grad_norm": values["grad_norm"],
            "optim/lr": values["learning_rate"],
            "time/step": values["seconds"],
        })  # fmt: skip
    path = directory / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _open_instruct_keys(values: Values) -> Row:
    kept = round(PROMPTS * values["mixed"])
    among_kept = (values["reward"] - values["all_correct"]) / max(values["mixed"], 1 / PROMPTS)
    among_kept = min(max(among_kept, 0.1), 0.9)
    return {
        "scores": 10 * among_kept,
        "objective/verifiable_correct_rate": among_kept,
        "policy/entropy_avg": values["entropy"],
        "policy/clipfrac_avg": values["clipped"],
        "objective/kl2_avg": values["kl"],
        "loss/total_avg": values["loss"],
        "val/ratio": 1.0,
        "val/sequence_lengths": values["length"],
        "val/sequence_lengths_max": values["max_length"],
        "val/sequence_lengths_min": values["min_length"],
        "val/stop_rate": 1 - values["truncated"],
        "val/advantages_max": values["max_advantage"],
        "val/advantages_min": values["min_advantage"],
        "real_batch_size_ratio": kept / PROMPTS,
        "batch/filtered_prompts": PROMPTS - kept,
        "batch/filtered_prompts_zero": round(PROMPTS * values["all_incorrect"]),
        "batch/filtered_prompts_solved": round(PROMPTS * values["all_correct"]),
        "batch/filtered_prompts_pct": (PROMPTS - kept) / PROMPTS,
        "batch/total_prompts": kept,
        "debug/vllm_vs_local_logprob_diff_mean": values["logprob_diff"],
        "optim/grad_norm": values["grad_norm"],
        "lr": values["learning_rate"],
        "time/total": values["seconds"],
    }


def open_instruct(course: Course, directory: Path) -> Path:
    """A history of W&B, exported as JSON lines: `global_step` counts episodes."""
    path = directory / "history.jsonl"
    lines = [{"training_step": step, "global_step": step * 512, "episode": step * 512, **row}
             for step, row in _rows(course, _open_instruct_keys)]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def open_instruct_events(course: Course, directory: Path) -> Path:
    """Older versions write TensorBoard events, whose own step counts episodes."""
    rows = ((step * 512, {**row, "training_step": float(step)})
            for step, row in _rows(course, _open_instruct_keys))  # fmt: skip
    return _write_events(directory, rows)


def tinker_cookbook(course: Course, directory: Path) -> Path:
    """`metrics.jsonl`."""
    lines = []
    for step in range(STEPS):
        values = course.at(step + 1)
        row = {
            "step": step,
            "progress/done_frac": (step + 1) / STEPS,
            "env/all/reward/total": values["reward"],
            "env/all/ac_tokens_per_turn": values["length"],
            "env/all/turns_per_episode": 1.0,
            "env/all/by_group/frac_mixed": values["mixed"],
            "env/all/by_group/frac_all_good": values["all_correct"],
            "env/all/by_group/frac_all_bad": values["all_incorrect"],
            "optim/entropy": values["entropy"],
            "optim/kl_sample_train_v1": values["engine_kl"],
            "optim/kl_sample_train_v2": values["logprob_diff"] ** 2,
            "optim/lr": values["learning_rate"],
            "time/total": values["seconds"],
        }
        if _evaluated(step + 1):
            row["test/env/all/reward/total"] = values["heldout"]
        lines.append(row)
    path = directory / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def plain_names(course: Course, directory: Path) -> Path:
    """A custom script's JSON lines with names that small teams choose."""

    def keys(values: Values) -> Row:
        return {
            "mean_reward": values["reward"],
            "answer_accuracy": values["reward"],
            "token_entropy": values["entropy"],
            "avg_response_token_length": values["length"],
            "max_response_length": values["max_length"],
            "frac_truncated": values["truncated"],
            "zero_advantage_frac": values["zero_variance"],
            "fraction_clipped": values["clipped"],
            "kl_ref": values["kl"],
            "logprob_abs_diff": values["logprob_diff"],
            "gradient_norm": values["grad_norm"],
            "actor_lr": values["learning_rate"],
            "grpo_loss": values["loss"],
            "seconds_per_step": values["seconds"],
        }

    path = directory / "train_log.jsonl"
    lines = ({"iteration": step, **row} for step, row in _rows(course, keys))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


WRITERS: dict[str, tuple[str, Callable[[Course, Path], Path]]] = {
    "trl": ("trl", trl),
    "ms-swift": ("ms-swift", ms_swift),
    "verl": ("verl", verl),
    "verl V1": ("verl", verl_v1),
    "openrlhf": ("openrlhf", openrlhf),
    "slime": ("slime", slime),
    "nemo-rl": ("nemo-rl", nemo_rl),
    "areal": ("areal", areal),
    "areal, older": ("areal", areal_older),
    "skyrl": ("skyrl", skyrl),
    "roll": ("roll", roll),
    "roll agentic": ("roll", roll_agentic),
    "prime-rl": ("prime-rl", prime_rl),
    "open-instruct": ("open-instruct", open_instruct),
    "open-instruct events": ("open-instruct", open_instruct_events),
    "tinker-cookbook": ("tinker-cookbook", tinker_cookbook),
    "plain names": ("generic", plain_names),
}
"""For each format: the framework's name and the writer."""
