"""Signatures and the order of experiments, on engines that are functions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause
from grpodoctor.probe.attribution.catalogue import all_causes
from grpodoctor.probe.attribution.explanation import DEFECT
from grpodoctor.probe.attribution.investigate import attribute, investigate
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.engines.jobs import ScoreJob
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import Control
from tests.probe.attribution.scripted import (
    LEARNER,
    TOKENS,
    VLLM,
    Scripted,
    case_of,
    exact,
    names,
    noisy,
    read_responses,
)


def test_bit_identical_engines_need_no_further_load(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, exact)
    found = investigate(runner, case_of(runner, VLLM, LEARNER))
    assert found.causes == ()
    assert found.verdict == "The engines agree: all log-probabilities are bit-identical."
    assert len(runner.loaded) == 2  # the columns, and the learner's tokenizer


def test_a_gap_that_nothing_explains_is_left_unexplained(tmp_path: Path) -> None:
    def wrong(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        return noisy(logits_NV, 0.3 * (engine.engine == "vllm"), generator)

    runner = Scripted(tmp_path, wrong)
    found = investigate(runner, case_of(runner, VLLM, LEARNER, differing=()))
    (named,) = found.causes
    assert (named.cause, named.confidence) == ("computed-differently", "possible")
    assert found.left == 1.0
    assert found.verdict.startswith("The engines differ: same files, computed differently")


@pytest.mark.slow
def test_differing_tensors_make_stale_weights_likely(tmp_path: Path) -> None:
    def wrong(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        return noisy(logits_NV, 0.3 * (engine.engine == "vllm"), generator)

    runner = Scripted(tmp_path, wrong)
    (named,) = attribute(runner, case_of(runner, VLLM, LEARNER, differing=("a.weight", "b.weight")))
    assert (named.cause, named.confidence) == ("stale-weights", "likely")
    assert named.details == ("a.weight", "b.weight")


@pytest.mark.slow
def test_known_causes_are_kept_when_the_budget_ends(tmp_path: Path) -> None:
    def hot(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        heat = 1.25 if engine.engine == "vllm" else 1.0
        return noisy(logits_NV / heat, 0.2 * (engine.engine == "vllm"), generator)

    whole = Scripted(tmp_path / "whole", hot)
    assert "temperature" in names(whole, case_of(whole, VLLM, LEARNER))
    runner = Scripted(tmp_path / "short", hot)
    case = case_of(runner, VLLM, LEARNER)
    for runs in range(4):
        runner.runs = runs
        runner.loaded.clear()
        found = investigate(runner, case)
        assert "the time budget ended before all experiments were run" in found.notes
        assert found.verdict


def test_a_budget_that_ends_early_leaves_what_the_checksums_show(tmp_path: Path) -> None:
    def wrong(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        return noisy(logits_NV, 0.3 * (engine.engine == "vllm"), generator)

    runner = Scripted(tmp_path, wrong, runs=1)
    case = case_of(runner, VLLM, LEARNER, differing=("a.weight",))
    found = investigate(runner, case)
    assert [(each.cause, each.confidence) for each in found.causes] == [("stale-weights", "likely")]
    runner.loaded.clear()
    unknown = investigate(runner, replace(case, differing=None))
    assert unknown.causes == ()
    assert "the time budget ended before its cause was found" in unknown.verdict


@pytest.mark.slow
def test_an_impossible_experiment_is_noted(tmp_path: Path) -> None:
    def rounded(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        return noisy(logits_NV, 0.05 * (engine.engine == "vllm"), generator)

    runner = Scripted(tmp_path, rounded)
    case = case_of(runner, VLLM.with_options(kv_cache_dtype="fp8"), LEARNER, differing=())
    runner.refuses = lambda engine: engine.engine == "vllm"
    found = investigate(runner, case)
    assert [each.cause for each in found.causes] == ["computed-differently"]
    assert any("experiment for kv-cache failed: it cannot do that" in note for note in found.notes)


def test_a_defect_of_one_experiment_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hotter(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        return logits_NV / (0.8 if engine.engine == "vllm" else 1.0)

    def broken(*_: object) -> None:
        raise IndexError("list index out of range")

    runner = Scripted(tmp_path, hotter)
    case = case_of(runner, VLLM, LEARNER, differing=())
    whole = investigate(runner, case)
    others = [each for each in all_causes() if each.id != whole.causes[0].cause]
    for cause in others:
        monkeypatch.setattr(type(cause), "experiment", broken)
    found = investigate(runner, case)
    assert [each.cause for each in found.causes] == [each.cause for each in whole.causes]
    assert not any(note.startswith(DEFECT) for note in whole.notes)
    monkeypatch.setattr(type(cause_named(whole.causes[0].cause)), "experiment", broken)
    (note, *_) = [n for n in investigate(runner, case).notes if n.startswith(DEFECT)]
    assert "IndexError: list index out of range (test_scripted.py:" in note


def cause_named(cause_id: str) -> Cause:
    (found,) = [each for each in all_causes() if each.id == cause_id]
    return found


def test_invalid_ids(tmp_path: Path) -> None:
    class Hostile(Scripted):
        def _done(self, engine: Any, job: Any) -> Path:
            folder = super()._done(engine, job)
            if (folder / "ids.json").exists():
                (folder / "ids.json").write_text('[["a"], {"b": ' + "[" * 100_000)
            return folder

    runner = Hostile(tmp_path, exact)
    found = investigate(runner, case_of(runner, VLLM, LEARNER))
    assert found.causes == ()
    assert any("experiment for prompt-ids failed" in note for note in found.notes)


def test_a_measurement_with_missing_shards(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, exact)
    case = case_of(runner, VLLM, LEARNER)
    for path in case.scored.glob("*.npz"):
        path.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(EngineError, match="cannot be used"):
        attribute(runner, case)


def test_a_failed_control_is_no_cause(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, exact)
    control = Control("repeat", "The same engine twice", False, "It differs.")
    assert names(runner, case_of(runner, VLLM, LEARNER, controls=(control,))) == []


def test_all_causes_are_discovered_and_have_remedies() -> None:
    causes = all_causes()
    assert len({each.id for each in causes}) == 42
    assert [each.id for each in causes].count("prompt-ids") == 9  # each search of other prompts
    assert [each.id for each in causes].count("prefix-caching") == 2  # and without the adapter
    assert all(each.remedies and each.title and (type(each).__doc__ or "") for each in causes)


def test_an_imitation_with_the_learners_own_adapter_competes_with_edits() -> None:
    """Only another checkpoint ends the search for edits: a prompt without the adapter explains a
    part of the gap of an adapter of which a part is lost."""
    assert {each.id for each in all_causes() if each.uses_other_files} == {
        "adapter", "earlier-adapter", "earlier-weights", "mixed-weights", "partial-sync",
        "partial-update", "stale-weights", "weight-update",
    }  # fmt: skip


@pytest.mark.parametrize(("others", "named"), [(0.0, True), (0.02, False)])
def test_a_subset_requires_that_the_others_agree(
    tmp_path: Path, others: float, named: bool
) -> None:
    def told(response: Any) -> None:
        scale = 0.5 if response.prompt % 5 == 0 else others
        noise = np.random.default_rng((response.prompt, response.sample)).standard_normal(TOKENS)
        response.logprobs = np.minimum(np.asarray(response.logprobs) + scale * noise, 0.0).tolist()

    runner = Scripted(tmp_path, exact)
    found = names(runner, case_of(runner, VLLM, LEARNER, told=told))
    assert ("subset-of-sequences" in found) is named


@pytest.mark.slow
def test_one_response_of_eight(tmp_path: Path) -> None:
    def told(response: Any) -> None:
        if (response.prompt, response.sample) == (0, 1):
            noise = np.random.default_rng(3).normal(size=len(response.logprobs))
            response.logprobs = (np.asarray(response.logprobs) + noise).tolist()

    runner = Scripted(tmp_path, exact, prompts=2)
    (named,) = attribute(runner, case_of(runner, VLLM, LEARNER, told=told))
    assert (named.cause, named.details) == ("subset-of-sequences", ("prompt 0 sample 1",))


def test_memory_is_bounded_by_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hot(engine: EngineSpec, logits_NV: Any, _: Any) -> Any:
        return logits_NV / (1.25 if engine.engine == "vllm" else 1.0)

    runner = Scripted(tmp_path, hot)
    case = case_of(runner, VLLM, LEARNER)
    monkeypatch.setattr("grpodoctor.probe.attribution.tokens.MOST_TOKENS", 30 * TOKENS + 7)
    tokens = Tokens.read(case.rollouts, case.scored)
    assert tokens.sampler_N.size == 30 * TOKENS
    assert tokens.surplus_N is not None
    assert len(tokens.prompt_B) == len(tokens.prompt_lengths_B) == 30
    assert len(tokens.surplus_N) == 30 * TOKENS
    assert names(runner, case) == ["temperature"]


class Crowded(Scripted):
    """The learner drops something whenever it scores many responses at once."""

    def _done(self, engine: EngineSpec, job: Any) -> Path:
        self.crowd = 0
        if isinstance(job, ScoreJob) and engine.engine == "transformers":
            self.crowd = sum(len(read_responses(path)) for path in job.rollouts.glob("shard-*.npz"))
        return super()._done(engine, job)


@pytest.mark.slow
def test_a_dependence_on_the_batch_that_no_order_shows(tmp_path: Path) -> None:
    """An engine that sorts responses by length gives them the same place in either order."""
    runner = Crowded(tmp_path, exact)

    def dropped(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        return noisy(logits_NV, 0.5 if getattr(runner, "crowd", 0) > 64 else 0.0, generator)

    runner.logits = dropped
    case = case_of(runner, VLLM, LEARNER)
    (named,) = [each for each in attribute(runner, case) if each.cause == "batch-variance"]
    assert named.confidence == "proven"
    assert "scoring a few of the responses alone changes the learner's" in named.summary
