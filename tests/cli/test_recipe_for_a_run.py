"""`recipe --run`: a preset as settings with the sizes of the run that is to take it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.runs.reading import opening
from grpodoctor.runs.records import Manifest, StepRecord
from grpodoctor.trainer.config.preset_translation import translate
from grpodoctor.trainer.config.presets import preset_of
from grpodoctor.vocabulary.values import Max, Mean
from tests.cli import in_process
from tests.frameworks.courses import COURSES, LIMIT
from tests.frameworks.generated_logs import WRITERS
from tests.frameworks.log_writers.trl import trl


def trl_run(directory: Path, course: str = "truncated") -> Path:
    return trl(COURSES[course], directory)


def settings_of(*arguments: object) -> dict[str, str]:
    lines = json.loads(in_process.run("recipe", *arguments, "--json").stdout)["settings"]
    return {line["key"]: line["value"] for line in lines}


def test_the_framework_is_the_runs_and_truncated_responses_show_the_limit(tmp_path: Path) -> None:
    page = in_process.run("recipe", "dapo", "--run", trl_run(tmp_path)).stdout
    assert page.startswith("dapo in TRL")
    assert f"get_soft_overlong_punishment({LIMIT}, {round(LIMIT / 5)})" in page


def test_without_truncation_the_limit_stays_open(tmp_path: Path) -> None:
    page = in_process.run("recipe", "dapo", "--run", trl_run(tmp_path, "healthy")).stdout
    assert "get_soft_overlong_punishment(<max_completion_length>" in page


def test_sizes_come_from_the_config_of_the_run(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("data: {train_batch_size: 256, max_response_length: 3000}")
    log = WRITERS["verl"][1](COURSES["healthy"], tmp_path)
    settings = settings_of("dapo", "--run", log, "--run-config", config)
    assert settings["+reward.reward_kwargs.max_resp_len"] == "3000"
    assert settings["+reward.reward_kwargs.overlong_buffer_cfg.len"] == "600"
    several = settings_of("gspo", "--run", log, "--run-config", config)
    assert several["actor_rollout_ref.actor.ppo_mini_batch_size"] == "64"
    # What the preset itself sets is not taken from the run.
    assert settings["actor_rollout_ref.rollout.n"] == "8"


def test_another_framework_can_be_named(tmp_path: Path) -> None:
    page = in_process.run("recipe", "dapo", "--run", trl_run(tmp_path), "--framework", "verl")
    assert page.stdout.startswith("dapo in verl")
    assert f"max_resp_len={LIMIT}" in page.stdout


def test_without_a_run_hydra_fills_in_the_limit() -> None:
    lines = translate(preset_of("dr_grpo"), configurable_framework_named("verl")).settings
    written = {line.key: line.value for line in lines}
    assert written["actor_rollout_ref.actor.loss_scale_factor"] == "'${data.max_response_length}'"


def test_a_run_of_an_unknown_framework_needs_a_name(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(f'{{"step": {n}, "reward_mean": 0.5}}\n' for n in range(20)))
    done = in_process.run("recipe", "dapo", "--run", log)
    assert (done.returncode, done.stdout) == (2, "")
    assert "which framework wrote it" in done.stderr
    assert "add --framework NAME" in done.stderr


def test_a_config_without_a_run_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    done = in_process.run("recipe", "dapo", "--framework", "trl", "--run-config", config)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--run-config belongs to a run" in done.stderr


def test_a_missing_run_is_one_line(tmp_path: Path) -> None:
    done = in_process.run("recipe", "dapo", "--run", tmp_path / "missing")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such file" in done.stderr


@pytest.mark.parametrize("target", [("--framework", "trl"), ("--run", "missing")])
def test_a_preset_must_be_named(target: tuple[str, str]) -> None:
    done = in_process.run("recipe", *target)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no preset was named; name one of cispo, dapo, ")
    assert done.stderr.count("\n") == 1


def test_a_run_is_read_only_up_to_its_length_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def steps() -> Iterator[StepRecord]:
        for number, truncated in enumerate([0.0, 0.0, 0.5, 0.5, 0.5]):
            read.append(number)
            longest = Max(64.0 + number)
            yield StepRecord(
                number, {"length/max": longest, "length/truncated_rate": Mean(8 * truncated, 8)}
            )

    run = SimpleNamespace(manifest=Manifest(framework="trl"), steps=steps())
    monkeypatch.setattr(opening, "open_run", lambda *_: run)
    page = in_process.run("recipe", "dapo", "--run", "log").stdout
    assert "get_soft_overlong_punishment(66, 13)" in page
    assert read == [0, 1, 2]
