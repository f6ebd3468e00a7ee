"""Several causes of one gap; see docs/attribution-method.md, steps 5 to 10."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.case import Attribution
from grpodoctor.probe.attribution.exact_responses import effective_gap
from grpodoctor.probe.attribution.investigate import investigate
from grpodoctor.probe.attribution.tokens import of_columns, typical_share
from grpodoctor.probe.attribution.wording.naming import doubtful_errors
from grpodoctor.probe.contract import Response
from grpodoctor.probe.engines.jobs import Job, ScoreJob, WhatIfsJob
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import Confidence, NamedCause
from tests.probe.attribution.scripted import SAMPLES, Scripted, case_of

SAMPLER = EngineSpec.of("vllm", "m", {})
LEARNER = EngineSpec.of("transformers", "m", {})
FIRST, SECOND, HALF = "activation", "qk_norm_order", "norm_epsilon"
"""Edits that remove the first error, the second one, and half of their sum."""


@dataclass
class TwoErrors(Scripted):
    """The sampler's logits have two errors, which edits of the learner have, too."""

    sizes: tuple[float, float] = (0.0, 0.0)
    heat: float = 1.0
    """The sampler's temperature."""
    offered: tuple[str, ...] = (FIRST, SECOND)
    edits: frozenset[str] = field(default=frozenset(), init=False)
    """Those of the job that is run."""

    def _done(self, engine: EngineSpec, job: Job) -> Path:
        self.edits = frozenset()
        if isinstance(job, ScoreJob) and job.what_if:
            self.edits = frozenset(name for name, _ in json.loads(job.what_if))
        folder = super()._done(engine, job)
        if isinstance(job, WhatIfsJob):
            listed = [{"name": n, "values": ["on"], "kind": "choice"} for n in self.offered]
            (folder / "what_ifs.json").write_text(json.dumps(listed))
        return folder

    def seen(self, engine: EngineSpec, response: Response) -> Any:
        seen_NV = super().seen(engine, response)
        generator = np.random.default_rng((4, response.prompt, response.sample))
        errors = [size * generator.standard_normal(seen_NV.shape) for size in self.sizes]
        if engine.engine == "vllm":
            return (seen_NV + sum(errors)) / self.heat
        shares = [(FIRST in self.edits), (SECOND in self.edits)]
        for share, error in zip(shares, errors, strict=True):
            seen_NV = seen_NV + (share + 0.5 * (HALF in self.edits)) * error
        return seen_NV


def plain(_: EngineSpec, logits_NV: Any, __: Any) -> Any:
    return logits_NV


def confidences(found: Attribution) -> dict[str, str]:
    return {each.cause: each.confidence for each in found.causes}


@pytest.mark.slow
def test_a_cause_that_imitates_a_part_of_two_gives_way_to_both(tmp_path: Path) -> None:
    """It removes more than either of them, and neither removes anything next to it."""
    runner = TwoErrors(tmp_path, plain, sizes=(0.3, 0.3), offered=(FIRST, SECOND, HALF))
    found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
    assert confidences(found) == {"activation": "proven", "qk-norm": "proven"}
    assert found.left == pytest.approx(0.0, abs=1e-6)


def test_two_faults_that_saturate_the_difference_are_named(tmp_path: Path) -> None:
    """Next to the other one, the removal of either of them changes little."""
    runner = TwoErrors(tmp_path, plain, sizes=(4.0, 4.0))
    found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
    assert confidences(found) == {"activation": "proven", "qk-norm": "proven"}


@pytest.mark.slow
def test_what_was_found_first_is_kept_if_the_budget_ends_in_a_further_search(
    tmp_path: Path,
) -> None:
    whole = TwoErrors(tmp_path / "whole", plain, sizes=(0.5, 0.1), offered=(FIRST,))
    expected = investigate(whole, case_of(whole, SAMPLER, LEARNER)).causes
    assert [each.cause for each in expected] == ["activation"]
    runs = len(whole.loaded)
    kept = 0
    for fewer in range(1, 8):
        folder = tmp_path / str(fewer)
        runner = TwoErrors(folder, plain, sizes=(0.5, 0.1), offered=(FIRST,), runs=runs - fewer)
        found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
        kept += [each.cause for each in found.causes] == ["activation"]
    assert kept


def test_a_part_of_the_gap_is_not_proven_because_the_budget_ends(tmp_path: Path) -> None:
    """The edit alone removes most, and the second fault is not searched any more."""
    whole = TwoErrors(tmp_path / "whole", plain, sizes=(0.5, 0.15), offered=(FIRST,))
    investigate(whole, case_of(whole, SAMPLER, LEARNER))
    runs = len(whole.loaded) * 3 // 4
    short = TwoErrors(tmp_path / "short", plain, sizes=(0.5, 0.15), offered=(FIRST,), runs=runs)
    found = investigate(short, case_of(short, SAMPLER, LEARNER))
    assert "the time budget ended before all experiments were run" in found.notes
    assert confidences(found) == {"activation": "likely"}
    assert "the learner comes closer to the sampler" in found.causes[0].summary
    assert any(note.startswith("The sampler is named because") for note in found.notes)


def test_a_fault_of_few_responses_does_not_hide_one_of_all(tmp_path: Path) -> None:
    """The few carry most of the gap, so that the mean hardly falls without the other fault."""

    def told(response: Response) -> None:
        if response.sample == 3:
            noise = np.random.default_rng((6, response.prompt)).standard_normal(40)
            response.logprobs = np.minimum(np.asarray(response.logprobs) + 2.5 * noise, 0).tolist()

    runner = TwoErrors(tmp_path, plain, sizes=(0.2, 0.0))
    found = investigate(runner, case_of(runner, SAMPLER, LEARNER, told=told))
    assert confidences(found)["activation"] == "proven"
    others = [each for each in found.causes if each.cause != "activation"]
    assert all("sample 3 of every prompt" in f"{each.summary} {each.details}" for each in others)


@pytest.mark.slow
def test_a_second_cause_is_searched_in_the_responses_that_still_differ(tmp_path: Path) -> None:
    class OneHot(TwoErrors):
        def seen(self, engine: EngineSpec, response: Response) -> Any:
            is_hot = engine.engine == "vllm" and response.sample == SAMPLES - 1
            return super().seen(engine, response) / (1.6 if is_hot else 1.0)

    runner = OneHot(tmp_path, plain, sizes=(0.3, 0.0))
    found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
    assert confidences(found) == {"activation": "proven", "temperature": "proven"}
    (hot,) = (each for each in found.causes if each.cause == "temperature")
    assert "only in sample 3 of every prompt" in hot.details
    assert not found.subset  # all responses differ


def averaged(response: Response) -> None:
    response.logprobs = [float(np.mean(response.logprobs or [0.0]))] * len(response.response_ids)


def clipped(response: Response) -> None:
    response.logprobs = np.maximum(response.logprobs or [0.0], -2.0).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "cause"),
    [(averaged, "averaging"), pytest.param(clipped, "clipping", marks=pytest.mark.slow)],
)
def test_the_reported_form_is_kept_while_further_causes_are_tried(
    told: Any, cause: str, tmp_path: Path
) -> None:
    """Each new scoring of the learner is averaged or clipped, too."""
    runner = TwoErrors(tmp_path, plain, sizes=(0.3, 0.0), heat=1.25)
    found = investigate(runner, case_of(runner, SAMPLER, LEARNER, told=told))
    expected = {cause: "proven", "temperature": "proven", "activation": "proven"}
    assert confidences(found) == expected


def test_the_typical_token_counts_only_if_its_gap_is_nearly_gone() -> None:
    target_N = np.log(np.linspace(0.1, 0.9, 1000))
    error_N = np.where(np.arange(1000) % 5 == 0, 2.0, 0.2)
    before = of_columns(target_N - error_N, target_N)
    fixed = of_columns(target_N - np.where(error_N > 1, error_N, 0.0), target_N)
    part = of_columns(target_N - np.where(error_N > 1, error_N, 0.1), target_N)
    assert typical_share(before, fixed, limit=1e-7) == pytest.approx(1.0)
    assert typical_share(before, part, limit=1e-7) == pytest.approx(0.75)
    assert typical_share(before, fixed, limit=0.03) == 0.0  # it was rounding before
    assert effective_gap(before, fixed, 1e-7) < 0.01 * before.gap
    assert effective_gap(before, part, 1e-7) == part.gap


@pytest.mark.parametrize(
    ("confidence", "doubtful"), [("likely", {"norm-epsilon"}), ("proven", set[str]())]
)
def test_a_small_imitated_cause_is_doubted_next_to_a_large_one_that_is_not_proven(
    confidence: Confidence, doubtful: set[str]
) -> None:
    """A wrong number that nearly fits leaves an error, and another number imitates that."""

    def named(cause: str, sure: Confidence, explained: float) -> NamedCause:
        return NamedCause(
            cause=cause, title=cause, confidence=sure, explained=explained, summary=""
        )

    causes = [
        named("embedding-scale", confidence, 0.99),
        named("truncation", "proven", 0.001),
        named("norm-epsilon", "proven", 1e-6),
    ]
    assert doubtful_errors(causes, {"embedding-scale", "norm-epsilon"}) == doubtful


@pytest.mark.parametrize(("explained", "doubted"), [(2e-6, True), (0.02, False)])
def test_a_trace_of_another_path_is_doubted_next_to_an_imitated_cause(
    explained: float, doubted: bool
) -> None:
    """A gate that is wrong at the padding of prompts, too, leaves a trace while generating."""
    causes = [
        NamedCause(cause=cause, title=cause, confidence="proven", explained=share, summary="")
        for cause, share in (("activation", 1 - explained), ("generation-path", explained))
    ]
    imitated = {"activation", "generation-path"}
    assert doubtful_errors(causes, imitated) == ({"generation-path"} if doubted else set())
