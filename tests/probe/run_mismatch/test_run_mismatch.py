"""`grpodoctor probe --run`: real recorded tokens, with planted differences."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from grpodoctor.errors import RunError
from grpodoctor.probe.run_mismatch.recorded_tokens import StepTokens, read_recorded_tokens
from grpodoctor.probe.run_mismatch.run_mismatch import measure_run
from grpodoctor.probe.run_mismatch.signatures import likely_causes
from grpodoctor.probe.run_mismatch.trend import mismatch_of, trend_of
from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.vocabulary.values import scalar
from tests.cli.in_process import run as grpodoctor


@pytest.fixture(scope="module")
def tokens(trained: Path) -> StepTokens:
    """The last step."""
    return read_recorded_tokens(trained, 20).steps[-1]


def test_the_figures_are_those_that_the_run_logged(trained: Path) -> None:
    result = measure_run(trained, 20)
    logged = list(read_run(trained).steps)
    assert [step.step for step in result.steps] == [step.step for step in logged][-3:]
    told = scalar(logged[-1].values["mismatch/kl_k3"])
    assert result.steps[-1].kl_k3 == pytest.approx(told, rel=1e-3)
    assert result.steps[-1].kl_k3 < 0.01
    assert result.causes
    assert measure_run(trained, 1).steps == result.steps[-1:]


def test_rollouts_of_two_formats_are_not_pooled(trained: Path, tmp_path: Path) -> None:
    both = shutil.copytree(trained, tmp_path / "run")
    row = {"input": "q", "output": "a", "score": 1.0, "step": 3, "responses": [5] * 9,
           "rollout_log_probs": [-1.0] * 9, "old_log_probs": [-3.0] * 9}  # fmt: skip
    (both / "3.jsonl").write_text(f"{json.dumps(row)}\n" * 20)
    assert measure_run(both, 20).steps == measure_run(trained, 20).steps
    shutil.rmtree(both / "rollouts")
    only = measure_run(both, 20)
    assert (only.frameworks, only.steps[-1].tokens) == (("verl",), 180)


def test_the_command_prints_the_judgement(trained: Path) -> None:
    done = grpodoctor("probe", "--run", str(trained))
    assert "nats per token at step" in done.stdout, done.stderr
    report = json.loads(grpodoctor("probe", "--run", str(trained), "--json").stdout)
    assert len(report["steps"]) == 3
    assert done.returncode == int(report["severity"] != "info")


def test_a_limit_judges_the_mean_of_the_steps(trained: Path) -> None:
    def gate(*limits: str):
        options = [word for limit in limits for word in ("--accept", limit)]
        return grpodoctor("probe", "--run", str(trained), *options)

    accepted = gate("k3=0.015", "prob_diff_max=1")
    assert accepted.returncode == 0, accepted.stderr
    (line,) = accepted.stdout.splitlines()
    assert line.startswith("accepted: ")
    assert gate("k3=0").returncode == 1
    exact = grpodoctor("probe", "--run", str(trained), "--exact")
    assert exact.returncode == 1
    assert re.match(r"not exact: [\d,]+ of [\d,]+ log-probabilities are bitwise", exact.stdout)
    unknown = gate("ess=0.5")
    assert unknown.returncode == 2
    assert "have no figure ess" in unknown.stderr


def _scaled(factor: float) -> Callable[[StepTokens], StepTokens]:
    return lambda tokens: replace(tokens, sampler_N=tokens.learner_N * factor)


def _shifted(tokens: StepTokens) -> StepTokens:
    return replace(tokens, sampler_N=np.roll(tokens.learner_N, 1))


def _bfloat16(tokens: StepTokens) -> StepTokens:
    stored_N = torch.tensor(tokens.learner_N).bfloat16().double().numpy()
    return replace(tokens, sampler_N=stored_N)


def _truncated(tokens: StepTokens) -> StepTokens:
    # The mass that is left out is larger where the distribution is flat.
    kept_N = 1 - 0.1 * (1 - np.exp(tokens.learner_N))
    return replace(tokens, sampler_N=np.minimum(tokens.learner_N - np.log(kept_N), 0.0))


def _ends(tokens: StepTokens) -> StepTokens:
    last_N = tokens.position_N == tokens.length_N - 1
    return replace(tokens, sampler_N=tokens.learner_N - 2.0 * last_N)


def _starts(tokens: StepTokens) -> StepTokens:
    rng = np.random.default_rng(0)
    first_N = tokens.position_N < 2
    noise_N = rng.normal(0, 1e-4, first_N.size) + rng.normal(0, 1.5, first_N.size) * first_N
    return replace(tokens, sampler_N=tokens.learner_N + noise_N)


def _responses(tokens: StepTokens) -> StepTokens:
    rng = np.random.default_rng(0)
    chosen_N = tokens.row_N % 16 == 0
    return replace(
        tokens, sampler_N=tokens.learner_N + rng.normal(0, 1.0, chosen_N.size) * chosen_N
    )


PLANTED = {
    "log2": (_scaled(1 / np.log(2)), "sampler reports log2"),
    "log10": (_scaled(1 / np.log(10)), "sampler reports log10"),
    "copy": (_scaled(1.0), "same values"),
    "shift": (_shifted, "shifted by 1"),
    "bfloat16": (_bfloat16, "stored in bfloat16"),
    "top-p": (_truncated, "truncated support"),
    "end token": (_ends, "end token"),
    "prompt": (_starts, "different prompts"),
    "responses": (_responses, "single responses"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_recognized(name: str, tokens: StepTokens) -> None:
    plant, expected = PLANTED[name]
    causes = likely_causes(plant(tokens))
    assert causes
    assert expected in causes[0].cause, causes


def test_noise_has_no_specific_cause(tokens: StepTokens) -> None:
    noise_N = np.random.default_rng(1).normal(0, 0.3, tokens.learner_N.size)
    (cause,) = likely_causes(replace(tokens, sampler_N=tokens.learner_N + noise_N))
    assert cause.cause.startswith("unknown")
    (cause,) = likely_causes(replace(tokens, sampler_N=tokens.learner_N + noise_N / 100))
    assert cause.cause.startswith("rounding")


@pytest.mark.parametrize("plant", ["noise", "bfloat16"])
def test_a_gap_of_rounding_size_needs_no_change(plant: str, tokens: StepTokens) -> None:
    noise_N = np.random.default_rng(1).normal(0, 0.003, tokens.learner_N.size)
    rounded = replace(tokens, sampler_N=tokens.learner_N + noise_N)
    (cause,) = likely_causes(rounded if plant == "noise" else _bfloat16(tokens))
    assert cause.experiment == ""
    assert not cause.is_fault


def test_stored_rounding_that_exceeds_sound_engines_is_a_fault(tokens: StepTokens) -> None:
    rare = replace(tokens, learner_N=tokens.learner_N * 40)  # rounding grows with the value
    (cause,) = likely_causes(_bfloat16(rare))
    assert cause.kind == "storage-precision"
    assert cause.is_fault
    assert "float32" in cause.experiment


def test_a_growing_gap_is_a_trend(tokens: StepTokens) -> None:
    rng = np.random.default_rng(2)
    noise_N = rng.normal(0, 1.0, tokens.learner_N.size)
    grown = [
        replace(tokens, step=step, sampler_N=tokens.learner_N + noise_N * 0.02 * step)
        for step in range(1, 11)
    ]
    trend = trend_of([mismatch_of(each) for each in grown])
    assert trend.direction == "rises"
    assert trend.last > 5 * max(trend.first, 1e-9)
    flat = [mismatch_of(replace(tokens, step=step)) for step in range(10)]
    assert trend_of(flat).direction == "flat"
    assert trend_of(flat[:3]).direction == "unknown"


def test_a_trend_stays_within_the_range_of_its_steps(tokens: StepTokens) -> None:
    step = mismatch_of(tokens)
    curved = [replace(step, step=at, kl_k3=1e-4 * at**2) for at in range(1, 8)]
    trend = trend_of(curved)  # the straight line is below zero at the first step
    assert trend.direction == "rises"
    assert trend.first == pytest.approx(1e-4)


def test_verl_dumps_with_both_sides_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for step in (1, 2):
        rows = []
        for number in range(40):
            sampler = (-rng.exponential(1.0, 20)).tolist()
            rows.append({
                "input": f"q{number // 4}", "output": "a", "score": 1.0, "step": step,
                "responses": list(range(20)), "rollout_log_probs": sampler,
                "old_log_probs": [value - 0.5 * (at == 19) for at, value in enumerate(sampler)],
            })  # fmt: skip
        (tmp_path / f"{step}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = measure_run(tmp_path, 5)
    assert result.frameworks == ("verl",)
    assert [each.tokens for each in result.steps] == [800, 800]
    assert "end token" in result.causes[0].cause


@pytest.mark.parametrize("first", [1, 6])
def test_steps_of_few_tokens_are_compared_together(first: int, tmp_path: Path) -> None:
    """Steps of 64 tokens; from the first step on, the sampler reports log2."""
    rng = np.random.default_rng(5)
    for step in range(1, 10):
        factor = 1 / np.log(2) if step >= first else 1 + 1e-6
        rows = []
        for number in range(4):
            learner = -rng.exponential(1.0, 16)
            rows.append({
                "input": f"q{number}", "output": "a", "score": 1.0, "step": step,
                "responses": list(range(16)), "rollout_log_probs": (learner * factor).tolist(),
                "old_log_probs": learner.tolist(),
            })  # fmt: skip
        (tmp_path / f"{step}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = measure_run(tmp_path, 20)
    assert [cause.kind for cause in result.causes if cause.kind != "jump"] == ["log-unit"]
    assert all(cause.command for cause in result.causes)
    assert "step=9" in result.causes[-1].command


def test_bad_input_is_one_line(tmp_path: Path, trained: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"input": "a", "output": "b", "score": 1.0, "step": 1}\n')
    for path, message in (
        (tmp_path / "nowhere", "there is no run"),
        (tmp_path, "hold no log-probabilities of sampler and learner"),
    ):
        with pytest.raises(RunError, match=message):
            measure_run(path, 5)
        done = grpodoctor("probe", "--run", str(path))
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
    with pytest.raises(RunError) as verl:
        measure_run(tmp_path, 5)
    assert "rollout_log_probs" in verl.value.remedy
    assert "attach" not in verl.value.remedy, "only what the framework of the dump needs"
    done = grpodoctor("probe", "--run", str(trained), "--sampler", "vllm:x")
    assert "--run and --sampler cannot be combined" in done.stderr
