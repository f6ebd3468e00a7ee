"""The printed settings, against the packages that read them."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.frameworks.written_settings import SettingLine
from grpodoctor.remedies.base import Remedy
from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.remedies.plain_grpo import PLAIN_GRPO
from grpodoctor.trainer.config.preset_translation import translate
from grpodoctor.trainer.config.presets import preset_names, preset_of
from grpodoctor.vocabulary.knobs import Setting

ROOT = Path(__file__).parents[2]
VERL_PYTHON = ROOT / ".venv-verl" / "bin" / "python"
KNOBS: dict[str, Setting] = {**PLAIN_GRPO, "prompts_per_batch": 64, "max_length": 2048}

_PLACEHOLDER = re.compile(r"<[^>]*>")


def lines_of(remedy: Remedy, framework: str) -> list[SettingLine]:
    """What the remedy prints for a run of plain GRPO."""
    change = remedy.change(KNOBS)
    lines = framework_settings(change, framework, KNOBS)
    lines += framework_settings(remedy.restart_with, framework, {**KNOBS, **change})
    return [line for line in lines if line.key]


def preset_lines(name: str, framework: str) -> list[SettingLine]:
    translated = translate(preset_of(name), configurable_framework_named(framework))
    return list(translated.settings)


def printed(framework: str) -> dict[str, list[SettingLine]]:
    """Everything that is printed, by remedy and preset."""
    remedies = {each.id: lines_of(each, framework) for each in all_remedies()}
    presets = {f"preset {name}": preset_lines(name, framework) for name in preset_names()}
    return {name: lines for name, lines in {**remedies, **presets}.items() if lines}


@pytest.mark.parametrize("framework", ["verl", "trl", "slime", "skyrl", "nemo-rl", "ms-swift",
                                       "open-instruct", "openrlhf", "areal", "prime-rl",
                                       "grpodoctor", "tinker-cookbook", "roll"])  # fmt: skip
def test_no_key_is_set_twice_with_different_values(framework: str) -> None:
    for name, lines in printed(framework).items():
        values: dict[str, str] = {}
        for line in lines:
            assert values.setdefault(line.key, line.value) == line.value, (name, line.key)


# TRL: its GRPOConfig is built in a process of its own, because importing TRL takes seconds.

_TRL_PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import get_repetition_penalty_reward, get_soft_overlong_punishment

errors = {}
for name, arguments in json.load(sys.stdin).items():
    try:
        plain = {"output_dir": "unused", "use_cpu": True, "bf16": False, "report_to": []}
        values = {key: eval(text) for key, text in arguments.items() if key != "reward_funcs"}
        config = GRPOConfig(**{**plain, **values})
        functions = eval(arguments.get("reward_funcs", "[]").replace("...", "print"))
        assert all(callable(function) for function in functions)
        errors[name] = ""
    except Exception as error:
        errors[name] = f"{type(error).__name__}: {error}"[:300]
print(json.dumps(errors))
"""


def trl_arguments(lines: Iterable[SettingLine]) -> dict[str, str]:
    """Keyword arguments of GRPOConfig; settings of the server and of rewards are left out."""
    kept = [line for line in lines if not line.key.startswith("trl vllm-serve")]
    return {line.key: _PLACEHOLDER.sub("64", line.value) for line in kept}


def test_trl_builds_its_config_with_what_every_remedy_prints() -> None:
    arguments = {name: trl_arguments(lines) for name, lines in printed("trl").items()}
    for each in arguments.values():
        # A GPU decides about these two; the names and types are checked without it.
        assert each.pop("bf16", "True") in ("True", "False")
        assert each.pop("fp16", "True") in ("True", "False")
    done = run([str(ROOT / ".venv" / "bin" / "python"), "-c", _TRL_PROGRAM], arguments)
    assert {name: error for name, error in done.items() if error} == {}


# verl: in an environment of its own, `make venv-verl`.

needs_verl = pytest.mark.skipif(not VERL_PYTHON.exists(), reason="make venv-verl creates it")


def verl_overrides(lines: Iterable[SettingLine]) -> list[str]:
    """Hydra overrides, with a number for each placeholder."""
    return [_PLACEHOLDER.sub("64", line.line) for line in lines]


def verl_errors(lines_by_name: Mapping[str, list[SettingLine]]) -> dict[str, str]:
    overrides = {name: verl_overrides(lines) for name, lines in lines_by_name.items()}
    done = run([str(VERL_PYTHON), str(ROOT / "tests" / "remedies" / "verl_config.py")], overrides)
    return {name: error for name, error in done.items() if error}


SAMPLE = ("soft-overlong", "dppo", "mis", "icepop", "one-temperature")


@pytest.mark.slow
@needs_verl
def test_verl_builds_its_config_with_a_sample_of_remedies() -> None:
    assert verl_errors({name: lines_of(remedy_of(name), "verl") for name in SAMPLE}) == {}


@needs_verl
@pytest.mark.slow
def test_the_check_of_verl_sees_what_is_wrong() -> None:
    """The soft punishment as it was printed once: without the limit and without `log`."""
    once = [
        line
        for line in lines_of(remedy_of("soft-overlong"), "verl")
        if not line.key.endswith(("max_resp_len", ".log"))
    ]
    wrong = {"once": once, "unknown": [SettingLine("actor_rollout_ref.actor.clip", "0.2")]}
    errors = verl_errors(wrong)
    assert "max_resp_len must be provided" in errors["once"]
    assert "clip" in errors["unknown"]


@needs_verl
@pytest.mark.slow
def test_verl_builds_its_config_with_what_every_remedy_and_preset_prints() -> None:
    assert verl_errors(printed("verl")) == {}


@functools.lru_cache(maxsize=1)
def environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "CI": "1"}


def run(command: list[str], data: object) -> dict[str, str]:
    done = subprocess.run(
        command, input=json.dumps(data), capture_output=True, text=True, timeout=600,
        env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(result, dict)
    return {str(name): str(error) for name, error in result.items()}
