"""Rules must not claim more than an attached probe measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.probe.attach import attach_result
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.results.results import Cell, ProbeResult
from grpodoctor.runs.records import STEPS, StepRecord
from grpodoctor.vocabulary.values import Mean
from tests.probe.pairs import Both, write


def drawn(tokens: int, temperature: float, seed: int) -> list[Both]:
    """Responses of 32 tokens, eight a prompt, of a sampler that the learner takes for its own."""
    rng = np.random.default_rng(seed)
    logits_NV = rng.normal(0, 1.5, (tokens, 16))
    learner_NV = logits_NV - np.log(np.exp(logits_NV).sum(axis=1, keepdims=True))
    noise_NV = rng.gumbel(size=logits_NV.shape)
    chosen_N = (logits_NV / temperature + noise_NV).argmax(axis=1)
    logprobs_N = learner_NV[np.arange(tokens), chosen_N]
    entropy_N = -(np.exp(learner_NV) * learner_NV).sum(axis=1)
    return [
        Both(logprobs_N[at : at + 32], logprobs_N[at : at + 32], at // 256, at // 32 % 8,
             learner_extras={"entropy": entropy_N[at : at + 32]})
        for at in range(0, tokens, 32)
    ]  # fmt: skip


def findings(folder: Path, responses: list[Both]) -> dict[str, str]:
    """Severity by code of the findings in a run that logs no mismatch, with this probe attached."""
    run = folder / "run"
    run.mkdir(parents=True)
    records = (StepRecord(step, {"reward/mean": Mean(5, 10)}) for step in range(12))
    (run / STEPS).write_bytes(b"".join(record.to_line() for record in records))
    found = compare(*write(folder / "pair", responses))
    cell = Cell(
        sampler="a", learner="b", max_tokens=32, status="done", comparison=found, verdict="They do."
    )
    result = ProbeResult(
        created="2026-11-21T10:00:00+00:00", settings={}, engines={}, cells=(cell,), seconds=1.0
    )
    attach_result(result, run)
    return {each.code: each.severity for each in replay(run).report.findings}


@pytest.mark.parametrize("seed", range(8))
def test_noise_of_a_short_probe_is_no_finding(tmp_path: Path, seed: int) -> None:
    """Of 512 to 1536 tokens, whose likelihood is off their entropy by .03 and more."""
    healthy = drawn(512 if seed % 2 else 1536, 1.0, seed)
    assert not findings(tmp_path, healthy)


def test_an_attached_probe_finds_samples_of_another_distribution(tmp_path: Path) -> None:
    found = findings(tmp_path, drawn(8192, 0.6, 1))
    assert found["MIS003"] in ("warning", "critical")
