"""What `probe --run` prints."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.probe.gates import judge_steps
from grpodoctor.probe.run_mismatch import run_mismatch
from grpodoctor.probe.run_mismatch.recorded_tokens import RecordedTokens, read_recorded_tokens
from grpodoctor.probe.run_mismatch.run_mismatch import measure_run
from grpodoctor.report.probe.run_view import view_of
from grpodoctor.report.text import render
from tests.cli.in_process import run as grpodoctor
from tests.probe.run_mismatch.conftest import JUMP_STEP, train

WARM = ("model.warm_start_steps=60", "engine.precision=learner")


def test_a_healthy_run_needs_no_change(trained: Path) -> None:
    done = grpodoctor("probe", "--run", trained)
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    assert words.startswith("healthy: the KL of sampler and learner is ")
    assert "Nothing needs to change." in words
    assert "float32" not in words
    assert "test it" not in words
    (cause,) = json.loads(grpodoctor("probe", "--run", trained, "--json").stdout)["causes"]
    assert (cause["kind"], cause["experiment"], cause["command"]) == ("rounding", "", "")


@pytest.mark.parametrize("width", [80, 120])
def test_a_jump_is_reported_with_its_step_and_a_command(jumped: Path, width: int) -> None:
    text = render(view_of(measure_run(jumped, 20)), width=width)
    words = " ".join(text.split())
    assert f"at step {JUMP_STEP} it jumps from " in words
    assert f"sampler or learner changed at step {JUMP_STEP}" in words
    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("--")]
    assert [line.split()[0] for line in commands] == ["--sampler", "--sampler", "--learner"]
    assert "unknown: other weights" not in words, "the jump replaces a cause that says nothing"


def test_the_json_has_the_command_and_the_step(jumped: Path) -> None:
    report = json.loads(grpodoctor("probe", "--run", jumped, "--json").stdout)
    assert report["trend"]["direction"] == "jumps"
    assert report["trend"]["jump_step"] == JUMP_STEP
    command = report["causes"][0]["command"]
    assert command.startswith(f"grpodoctor probe --sampler 'recorded:{jumped}?side=sampler&step=")
    assert "\n" not in command
    assert report["causes"][0]["note"]


def test_a_sampler_of_another_temperature(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "steps=2", "engine.temperature=1.4", *WARM)
    result = measure_run(run, 5)
    assert [cause.kind for cause in result.causes] == ["temperature"]
    text = " ".join(render(view_of(result), width=80).split())
    assert text.startswith("critical: ")
    assert "(critical above 0.015)" in text
    assert "too few steps for a trend" in text
    assert "test it on the recorded responses" in text


def test_equal_values_give_no_verdict(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(run: Path, steps: int) -> RecordedTokens:
        recorded = read_recorded_tokens(run, steps)
        equal = tuple(replace(each, sampler_N=each.learner_N) for each in recorded.steps)
        return replace(recorded, steps=equal)

    monkeypatch.setattr(run_mismatch, "read_recorded_tokens", copied)
    view = view_of(measure_run(trained, 5))
    assert view.diagnosis == "no verdict: both sides have the same values at step 3."
    gate = judge_steps(measure_run(trained, 5), (), exact=True)
    assert gate.passed
    assert gate.line.startswith("exact: ")
    assert "healthy" not in render(view)
