"""Rows of a log, recorded step by step, and configurations as plain values."""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import grpodoctor
from grpodoctor.frameworks.registry import framework_named
from grpodoctor.hooks.logged_steps import LoggedSteps, note_version, numbers_of
from grpodoctor.hooks.plain_config import plain_config
from grpodoctor.hooks.run_hook import RunHook, hook_options
from grpodoctor.vocabulary.values import Mean, scalar

EVALUATION = {"validation/accuracy": 0.75}


def steps_in(folder: Path) -> tuple[LoggedSteps, RunHook]:
    hook = RunHook("nemo-rl", hook_options(folder, "none", "off", 0), folder)
    steps = LoggedSteps(hook, framework_named("nemo-rl"))
    steps.begin({"grpo": {"num_generations_per_prompt": 8}}, model="tiny")
    return steps, hook


def recorded(folder: Path) -> list[tuple[int, dict[str, Any]]]:
    return [(record.step, record.values) for record in grpodoctor.open_run(folder)]


def test_the_rows_of_a_step_are_joined_and_unknown_rows_are_ignored(tmp_path: Path) -> None:
    steps, _ = steps_in(tmp_path / "run")
    for step in (1, 2):
        steps.add(step, {"train/reward": 0.5})
        steps.add(900 + step, {"ray/node.0.gpu.0.util": 90.0})
        steps.add(step, {"train": {"loss": 0.25 * step}})
    steps.close()
    (first, before), (second, values) = recorded(tmp_path / "run")
    assert (first, second) == (1, 2)
    assert scalar(before["reward/mean"]) == 0.5
    assert scalar(values["optimizer/loss"]) == 0.5


def test_a_late_evaluation_is_kept_and_another_late_row_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps, _ = steps_in(tmp_path / "run")
    steps.add(1, {"train/reward": 0.5})
    steps.end_step()
    steps.add(1, EVALUATION)
    for _ in range(3):
        steps.add(1, {"train/loss": 9.0})
    steps.add(2, {"train/reward": 0.5})
    steps.close()
    (_, first), (_, second) = recorded(tmp_path / "run")
    assert "accuracy/heldout" not in first
    assert "optimizer/loss" not in first
    assert scalar(second["accuracy/heldout"]) == 0.75
    assert caplog.text.count("its row came after the step was recorded") == 1


def test_what_an_adapter_measured_replaces_what_is_logged(tmp_path: Path) -> None:
    steps, _ = steps_in(tmp_path / "run")
    steps.add_measured(1, {"optimizer/loss": Mean.of([2.0])})
    steps.add(1, {"train/loss": 9.0, "train/reward": 0.5})
    steps.close()
    ((_, values),) = recorded(tmp_path / "run")
    assert scalar(values["optimizer/loss"]) == 2.0
    assert scalar(values["reward/mean"]) == 0.5


@pytest.mark.slow
def test_the_last_step_is_recorded_when_the_program_ends_without_closing(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from grpodoctor.runs.recording import recorder
from tests.hooks.test_logged_steps import steps_in
recorder.START_WAIT_SECONDS = recorder.CLOSE_WAIT_SECONDS = 100.0  # on a busy machine
recorder.STALL_SECONDS = 100.0
steps, _ = steps_in(Path({str(tmp_path / "run")!r}))
steps.add(1, {{"train/reward": 0.5}})
steps.add(2, {{"train/reward": 0.25}})
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [step for step, _ in recorded(tmp_path / "run")] == [1, 2]


@pytest.mark.parametrize(("version", "lines"), [("4.6.0", 0), ("4.6.0.dev3", 0), ("4.6.0rc1", 0),
                                                ("4.60.0", 1), ("4.7.0", 1), ("", 1)])  # fmt: skip
def test_another_version_is_one_line(
    version: str, lines: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, hook = steps_in(tmp_path / "run")
    for _ in range(2):
        note_version(hook, "ms-swift", version, ("4.6.0",))
    hook.close()
    assert caplog.text.count("is not among the verified versions 4.6.0") == lines


def test_numbers_of_a_row() -> None:
    row = {
        "int": 3, "bool": True, "text": "x", "none": None, "list": [1.0], "numpy": np.float32(0.5),
        "tensor": torch.tensor(2.0), "vector": torch.ones(3), "nested": {"deep": {"value": 1}},
    }  # fmt: skip
    assert dict(numbers_of(row)) == {
        "int": 3.0, "numpy": 0.5, "tensor": 2.0, "nested/deep/value": 1.0,
    }  # fmt: skip


class Kind(Enum):
    GROUP = "group"


@dataclass
class Inner:
    kind: Kind = Kind.GROUP
    sizes: tuple[int, ...] = (1, 2)
    function: Any = len


@dataclass
class Outer:
    rate: float = 0.5
    inner: Inner = field(default_factory=Inner)


def test_a_configuration_as_plain_values() -> None:
    plain = {"rate": 0.5, "inner": {"kind": "group", "sizes": [1, 2]}}
    assert plain_config(Outer()) == plain
    assert plain_config({"rate": 0.5, "inner": Inner()}) == plain
    assert plain_config(argparse.Namespace(rate=0.5, inner=Inner(), _private=1)) == plain
    assert plain_config(None) == plain_config(object()) == {}
    endless: dict[str, Any] = {}
    endless["again"] = endless
    assert plain_config(endless) == {}
