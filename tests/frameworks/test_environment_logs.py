"""Logs of agents that learn in an environment are named, and no log of a language model is."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from grpodoctor.errors import RunError
from grpodoctor.frameworks.objective import other_objective
from grpodoctor.frameworks.registry import generic_framework, logging_frameworks
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from tests.cli.in_process import run
from tests.frameworks.logged_keys import LOGGED

Row = dict[str, float]

ROLLOUT = {"rollout/ep_len_mean": 27.8, "rollout/ep_rew_mean": 27.8}
TIME = {"time/fps": 804.0, "time/iterations": 1.0, "time/time_elapsed": 9.0}
TRAIN = {
    "train/approx_kl": 0.0064,
    "train/clip_fraction": 0.0227,
    "train/clip_range": 0.2,
    "train/entropy_loss": -0.575,
    "train/explained_variance": 0.177,
    "train/learning_rate": 0.0003,
    "train/loss": 47.4,
    "train/n_updates": 10.0,
    "train/policy_gradient_loss": -0.004,
    "train/value_loss": 104.5,
}


def baselines_rows(count: int = 60) -> list[Row]:
    """Rows of PPO by Stable-Baselines3 2.9: the first has no update, and no key is a step."""
    rows: list[Row] = []
    for number in range(1, count + 1):
        steps = {"time/total_timesteps": 256.0 * number, "time/iterations": float(number)}
        reward = {name: value + number for name, value in ROLLOUT.items()}
        rows.append(reward | TIME | steps | (TRAIN if number > 1 else {}))
    return rows


def as_csv(rows: list[Row], directory: Path) -> Path:
    path = directory / "progress.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_json(rows: list[Row], directory: Path) -> Path:
    path = directory / "progress.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def as_console(rows: list[Row], directory: Path) -> Path:
    """The table that Stable-Baselines3 prints: families as headings, their keys indented."""
    lines: list[str] = []
    for row in rows:
        width = max(len(key.partition("/")[2]) for key in row) + 4
        lines.append("-" * (width + 19))
        family = ""
        for key in sorted(row):
            if not key.startswith(f"{family}/") or not family:
                family = key.partition("/")[0]
                lines.append(f"| {family + '/':<{width}} | {'':<12} |")
            lines.append(f"|    {key.partition('/')[2]:<{width - 3}} | {row[key]:<12.3g} |")
        lines.append("-" * (width + 19))
    path = directory / "console.txt"
    path.write_text("Logging to log\n" + "\n".join(lines) + "\n")
    return path


def as_events(rows: list[Row], directory: Path) -> Path:
    """TensorBoard events at the steps of the environment, without the rows' own count of them."""
    with SummaryWriter(str(directory)) as writer:
        for row in rows:
            for key, value in row.items():
                if key != "time/total_timesteps":
                    writer.add_scalar(key, value, int(row["time/total_timesteps"]))
    return directory


@pytest.mark.parametrize("write", [as_csv, as_json, as_console, as_events])
def test_a_log_of_stable_baselines_is_not_judged_as_a_language_model(
    write: Callable[[list[Row], Path], Path], tmp_path: Path
) -> None:
    done = run("check", write(baselines_rows(), tmp_path))
    assert done.returncode == 2
    message = " ".join(done.stdout.split())
    assert "reinforcement learning in an environment" in message
    assert "not of a language model" in message
    assert "ep_rew_mean" in message


OTHERS = {
    "CleanRL": """charts/learning_rate charts/episodic_return charts/episodic_length charts/SPS
        losses/value_loss losses/policy_loss losses/entropy losses/old_approx_kl losses/approx_kl
        losses/clipfrac losses/explained_variance""",
    "RLlib": """episode_reward_mean episode_reward_max episode_reward_min episode_len_mean
        episodes_this_iter timesteps_total num_env_steps_sampled num_env_steps_trained
        info/learner/default_policy/learner_stats/kl
        info/learner/default_policy/learner_stats/entropy""",
    "RLlib, new API": """env_runners/episode_return_mean env_runners/episode_len_mean
        learners/default_policy/mean_kl_loss learners/default_policy/entropy
        num_env_steps_sampled_lifetime time_total_s""",
    "DQN script": """average_score high_score average_time_steps start_eps end_eps""",
    "agent script": "episode action lives reward score",
    "without episodes": """time/fps time/total_timesteps time/iterations train/approx_kl train/loss
        train/explained_variance""",
}


@pytest.mark.parametrize("keys", OTHERS.values(), ids=OTHERS)
def test_other_libraries_of_agents_are_recognized(keys: str, tmp_path: Path) -> None:
    path = as_json(
        [dict.fromkeys(keys.split(), 0.5) | {"step": step} for step in range(80)], tmp_path
    )
    with pytest.raises(RunError, match="reinforcement learning in an environment"):
        list(open_run(path).steps)


def test_a_mapping_overrides_the_recognition(tmp_path: Path) -> None:
    path = as_json(baselines_rows(), tmp_path)
    mapped = ReadOptions(mapping={"rollout/ep_rew_mean": "reward/mean"})
    assert "reward/mean" in next(iter(open_run(path, mapped).steps)).values


@pytest.mark.parametrize("name", LOGGED)
def test_no_log_of_a_language_model_is_taken_for_one(name: str) -> None:
    framework = next(each for each in logging_frameworks() if each.name == name)
    keys = LOGGED[name].split()
    assert other_objective(framework, keys) == ""
    assert other_objective(framework, [*keys, *ROLLOUT, *TIME]) == ""


@pytest.mark.parametrize(
    "keys",
    [
        "episode_reward_mean episode_len_mean response_length loss",
        "episode_return_mean episode_len_mean prompts/skipped loss kl",
        "rollout/ep_rew_mean rollout/ep_len_mean num_generated_tokens train/total_tokens/mean",
        "episode_reward_mean reward loss grad_norm",
        "episodic_return frac_reward_zero_std loss",
        "reward loss kl clip/eps actions",
        "reward loss adam/eps env/actions entropy",
    ],
)
def test_agents_with_a_language_model_are_examined(keys: str) -> None:
    assert other_objective(generic_framework(), keys.split()) == ""
