"""A small sample of the planted runs: `make planted-runs` examines all causes and formats."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.planted_runs.__main__ import main
from tests.benchmarks.planted_runs.examination import (
    examine,
    layouts_with_evidence,
    logged_quantities,
)
from tests.benchmarks.planted_runs.plants import CAUSES, HEALTHY
from tests.frameworks.generated_logs import WRITERS

SHORT = (50, 70)
"""Steps of a run, for tests that take a second."""

PLANTED = [
    ("verifier-rejects", "verl"),
    ("judge-down", "nemo-rl"),
    ("reward-constant", "plain names"),
    ("reward-rescaled", "trl"),
    ("copied-responses", "tinker-cookbook"),
    ("too-hard", "prime-rl"),
    ("tools-fail", "open-instruct"),
    ("rollouts-aborted", "verl V1"),
    ("invalid-actions", "roll agentic"),
    ("limit-lowered", "slime"),
    ("no-end-token", "openrlhf"),
    ("entropy-bonus", "skyrl"),
    ("lr-jumps", "verl, early"),
    ("lr-ends", "areal"),
    ("nan", "ms-swift"),
    ("advantages-raw", "roll"),
    ("other-reference", "miles"),
    ("sampler-quantized", "rllm"),
    ("weights-corrupted", "areal, older"),
    ("loss-masked", "verl"),
]
SOUND = [
    ("plain", "verl"),
    ("noisy", "trl"),
    ("filtered", "open-instruct events"),
    ("negative-rewards", "slime"),
    ("asynchronous", "prime-rl"),
]


@pytest.mark.parametrize(("name", "layout"), PLANTED)
def test_the_first_line_names_a_planted_cause(name: str, layout: str, tmp_path: Path) -> None:
    plant = replace(CAUSES[name], steps=SHORT)
    assert layout in layouts_with_evidence(plant)
    answer = examine(plant, layout, f"sample/{name}/{layout}", tmp_path)
    assert answer.is_named_first, answer.line


@pytest.mark.parametrize(("name", "layout"), SOUND)
def test_a_healthy_run_that_looks_odd_has_no_alarm(name: str, layout: str, tmp_path: Path) -> None:
    plant = replace(HEALTHY[name], steps=SHORT)
    answer = examine(plant, layout, f"sample/{name}/{layout}", tmp_path)
    assert answer.is_named_first, answer.line


def test_every_format_logs_the_reward_and_every_cause_has_a_format_that_shows_it() -> None:
    logged = logged_quantities()
    assert set(logged) == set(WRITERS)
    assert all({"reward", "entropy", "length"} <= names for names in logged.values())
    assert [name for name, plant in CAUSES.items() if not layouts_with_evidence(plant)] == []


def test_a_name_that_matches_no_planted_run_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["planted_runs", "--only", "entropy-bonus", "no such cause"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert str(stopped.value.code).startswith("--only: no planted run of this seed has 'no such")
    assert "\n" not in str(stopped.value.code)
    assert capsys.readouterr().out == ""
