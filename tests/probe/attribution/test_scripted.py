"""Signatures and the order of experiments, on engines that are functions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.catalogue import all_causes
from grpodoctor.probe.attribution.investigate import attribute, investigate
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.contract import Processing, Sampling
from grpodoctor.probe.engines.jobs import ScoreJob
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import Control
from tests.probe.attribution.scripted import (
    TOKENS,
    Scripted,
    case_of,
    noisy,
    processed,
    read_responses,
)

LEARNER = EngineSpec.of("transformers", "model", {})
VLLM = EngineSpec.of("vllm", "model", {})
BFLOAT16 = 0.01
"""The error of logits that represents rounding to this precision."""


def exact(_: EngineSpec, logits_NV: Any, __: Any) -> Any:
    return logits_NV


def rounding(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
    """Errors of their own for each engine, unless it computes in float32."""
    draws = np.random.default_rng((generator.integers(1 << 30), len(engine.engine)))
    rounds = engine.options.get("dtype", "bfloat16") == "bfloat16"
    return noisy(logits_NV, BFLOAT16 if rounds else 0.0, draws)


def names(runner: Scripted, case: Any) -> list[str]:
    return [each.cause for each in attribute(runner, case)]


def test_bit_identical_engines_need_no_further_load(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, exact)
    found = investigate(runner, case_of(runner, VLLM, LEARNER))
    assert found.causes == ()
    assert found.verdict == "The engines agree: all log-probabilities are bit-identical."
    assert len(runner.loaded) == 2  # the columns, and the learner's tokenizer


def test_two_bfloat16_engines_with_different_rounding(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, rounding, dtypes={"vllm": "bfloat16", "transformers": "bfloat16"})
    found = investigate(runner, case_of(runner, VLLM, LEARNER))
    assert found.causes == ()
    assert found.noise == pytest.approx(found.gap, rel=1.0)
    assert "within the precision of bfloat16 and bfloat16" in found.verdict


def test_autocast_is_the_reported_precision(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, rounding, dtypes={"vllm": "bfloat16", "transformers": "float32"})
    found = investigate(runner, case_of(runner, VLLM, LEARNER.with_options(autocast="bfloat16")))
    assert "within the precision of bfloat16 and bfloat16" in found.verdict


def test_rounding_of_the_sampler_is_proven_by_running_it_in_float32(tmp_path: Path) -> None:
    # In bfloat16 the learner rounds in another way than the sampler: lowering it proves nothing.
    runner = Scripted(tmp_path, rounding, dtypes={"vllm": "bfloat16", "transformers": "float32"})
    learner = LEARNER.with_options(dtype="float32")
    (named,) = attribute(runner, case_of(runner, VLLM, learner))
    assert (named.cause, named.confidence) == ("precision", "proven")
    assert "with the sampler in float32" in named.summary


def test_partly_shared_rounding_is_removed_completely(tmp_path: Path) -> None:
    # Two kernels of one precision: to lower the learner takes away half, to raise the sampler all.
    def partly(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        if engine.options.get("dtype", "bfloat16") != "bfloat16":
            return logits_NV
        return rounding(engine, noisy(logits_NV, 1.8 * BFLOAT16, generator), generator)

    runner = Scripted(tmp_path, partly, dtypes={"vllm": "bfloat16", "transformers": "float32"})
    (named,) = attribute(runner, case_of(runner, VLLM, LEARNER.with_options(dtype="float32")))
    assert (named.cause, named.confidence) == ("precision", "proven")
    assert named.explained is not None
    assert named.explained > 0.99


def test_a_parallel_layout_is_proven_by_running_on_one_device(tmp_path: Path) -> None:
    def divided(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        return noisy(logits_NV, 0.02 * ("tensor_parallel_size" in engine.options), generator)

    runner = Scripted(tmp_path, divided, layouts={"vllm": 2})
    sampler = VLLM.with_options(tensor_parallel_size=2)
    (named,) = attribute(runner, case_of(runner, sampler, LEARNER))
    assert (named.cause, named.confidence) == ("parallel-layout", "proven")
    assert named.details == ("sampler: tensor_parallel 2",)


@pytest.mark.slow
def test_a_parallel_layout_without_effect_is_not_named(tmp_path: Path) -> None:
    def wrong(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        return noisy(logits_NV, 0.3 * (engine.engine == "vllm"), generator)

    runner = Scripted(tmp_path, wrong, layouts={"vllm": 2})
    sampler = VLLM.with_options(tensor_parallel_size=2, kv_cache_dtype="fp8", quantization="fp8")
    assert not {"parallel-layout", "kv-cache", "quantisation"} & set(
        names(runner, case_of(runner, sampler, LEARNER))
    )


@pytest.mark.parametrize(
    ("option", "value", "cause"),
    [("kv_cache_dtype", "fp8", "kv-cache"), ("quantization", "fp8", "quantisation")],
)
def test_the_samplers_dtype_options(tmp_path: Path, option: str, value: str, cause: str) -> None:
    def rounded(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        return noisy(logits_NV, 0.05 * (option in engine.options), generator)

    runner = Scripted(tmp_path, rounded)
    (named,) = attribute(runner, case_of(runner, VLLM.with_options(**{option: value}), LEARNER))
    assert (named.cause, named.confidence) == (cause, "proven")


def cached(share: int) -> Any:
    """Responses with a cached prompt, whose first tokens are off."""

    def told(response: Any) -> None:
        if response.prompt % share == 0:
            response.cached = 2
            spoilt = np.asarray(response.logprobs)
            spoilt[:10] *= 1.5
            response.logprobs = spoilt.tolist()

    return told


def test_prefix_caching_by_the_gap_of_cached_prompts(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, exact)
    (named,) = attribute(runner, case_of(runner, VLLM, LEARNER, told=cached(2)))
    assert (named.cause, named.confidence) == ("prefix-caching", "proven")
    assert named.figures["cached_share"] == 0.5


def test_prefix_caching_of_all_prompts_is_only_likely(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, exact)
    (named,) = attribute(runner, case_of(runner, VLLM, LEARNER, told=cached(1)))
    assert (named.cause, named.confidence) == ("prefix-caching", "likely")


def test_a_harmless_prefix_cache_is_not_named(tmp_path: Path) -> None:
    def innocent(response: Any) -> None:
        response.cached = 2 * (response.prompt % 2)
        response.logprobs = [min(each * 1.1, 0) for each in response.logprobs or []]

    runner = Scripted(tmp_path, exact)
    assert "prefix-caching" not in names(runner, case_of(runner, VLLM, LEARNER, told=innocent))


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


def test_a_learner_that_cannot_score_again_is_judged_by_its_recorded_scores(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, exact)
    case = case_of(runner, VLLM, replace(LEARNER, engine="recorded"), told=shifted)
    runner.refuses = lambda _: True
    (named,) = attribute(runner, case)
    assert named.cause == "off-by-one"


def shifted(response: Any) -> None:
    response.logprobs = [*(response.logprobs or [])[1:], -1.0]


def test_a_shift_in_the_other_direction(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, exact)
    (named,) = attribute(runner, case_of(runner, VLLM, LEARNER, told=shifted))
    assert named.figures["shift"] == -1
    assert "one token too early" in named.summary


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_nonfinite_logprobs(tmp_path: Path, value: float) -> None:
    def broken(response: Any) -> None:
        response.logprobs = [value] * len(response.response_ids)

    runner = Scripted(tmp_path, exact)
    found = investigate(runner, case_of(runner, VLLM, LEARNER, told=broken))
    assert found.causes == ()
    assert found.verdict.startswith("No token has a finite log-probability")


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
    assert len({each.id for each in causes}) == 35
    assert [each.id for each in causes].count("prompt-ids") == 5  # and replaced by prompt, or lost
    assert [each.id for each in causes].count("prefix-caching") == 2  # and without the adapter
    assert all(each.remedies and each.title and (type(each).__doc__ or "") for each in causes)


def test_an_imitation_with_the_learners_own_adapter_competes_with_edits() -> None:
    """Only another checkpoint ends the search for edits: a prompt without the adapter explains a
    part of the gap of an adapter of which a part is lost."""
    assert {each.id for each in all_causes() if each.uses_other_files} == {
        "adapter", "mixed-weights", "partial-sync", "stale-weights", "weight-update",
    }  # fmt: skip


def test_a_temperature_between_the_columns_is_found(tmp_path: Path) -> None:
    def hot(engine: EngineSpec, logits_NV: Any, _: Any) -> Any:
        return logits_NV / (1.37 if engine.engine == "vllm" else 1.0)

    runner = Scripted(tmp_path, hot)
    (named,) = attribute(runner, case_of(runner, VLLM, LEARNER))
    assert named.figures["fitted"] == pytest.approx(1.37, rel=0.01)


def test_a_learner_at_another_temperature_than_requested(tmp_path: Path) -> None:
    def as_asked(engine: EngineSpec, logits_NV: Any, _: Any) -> Any:
        return logits_NV / (0.7 if engine.engine == "vllm" else 1.0)

    runner = Scripted(tmp_path, as_asked)
    sampling = Sampling(samples=4, max_tokens=40, temperature=0.7)
    case = case_of(runner, VLLM, LEARNER, sampling=sampling, processing=Processing())
    (named,) = attribute(runner, case)
    assert "the learner is wrong, 0.7 was requested" in named.summary


@pytest.mark.parametrize("heat", [0.988, 1.012])
def test_a_temperature_difference_smaller_than_rounding(tmp_path: Path, heat: float) -> None:
    def warm(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        heated = logits_NV / heat if engine.engine == "vllm" else logits_NV
        return rounding(engine, heated, generator)

    runner = Scripted(tmp_path, warm, dtypes={"vllm": "bfloat16", "transformers": "bfloat16"})
    found = investigate(runner, case_of(runner, VLLM, LEARNER))
    assert found.gap < 4 * (found.noise or 0.0)
    assert [each.cause for each in found.causes] == ["temperature"]
    assert found.causes[0].figures["fitted"] == pytest.approx(heat, abs=0.004)


def test_a_truncation_smaller_than_rounding(tmp_path: Path) -> None:
    def cut(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        rounded_NV = rounding(engine, logits_NV, generator)
        if engine.engine != "vllm":
            return rounded_NV
        kept = np.sort(rounded_NV, axis=-1)[:, -20, None]
        return np.where(rounded_NV >= kept, rounded_NV, -np.inf)

    runner = Scripted(tmp_path, cut, dtypes={"vllm": "bfloat16", "transformers": "bfloat16"})
    found = investigate(runner, case_of(runner, VLLM, LEARNER))
    assert [each.cause for each in found.causes] == ["truncation"]
    assert found.causes[0].figures["top_k"] == 20


def moved(far: int) -> Any:
    """The sampler's column, so many tokens late."""

    def told(response: Any) -> None:
        response.logprobs = np.roll(response.logprobs or [], far).tolist()

    return told


@pytest.mark.parametrize(("far", "words"), [(2, "two tokens too late"), (-3, "three tokens")])
def test_a_shift_of_several_tokens(tmp_path: Path, far: int, words: str) -> None:
    runner = Scripted(tmp_path, exact)
    (named,) = attribute(runner, case_of(runner, VLLM, LEARNER, told=moved(far)))
    assert (named.cause, named.figures["shift"]) == ("off-by-one", far)
    assert words in named.summary


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


def ended(response: Any) -> None:
    response.ended = True


def cut_short(response: Any) -> None:
    response.response_ids, response.logprobs = response.response_ids[:-1], response.logprobs[:-1]


@pytest.mark.parametrize(
    ("told", "ends", "words"),
    [
        (ended, (24,), "are marked as ended, but their last token is not an end token"),
        (cut_short, (24,), "stop before the limit without an end token"),
        (lambda _: None, (3,), "continue after a token that ends a response in the learner"),
    ],
)
def test_unexpected_end_tokens(
    tmp_path: Path, told: Any, ends: tuple[int, ...], words: str
) -> None:
    runner = Scripted(tmp_path, exact)
    facts = replace(runner.facts(LEARNER), end_ids=ends)
    (named,) = attribute(runner, case_of(runner, VLLM, LEARNER, told=told, learner_facts=facts))
    assert (named.cause, named.confidence) == ("eos-handling", "proven")
    assert words in named.summary
    assert bool(named.details) == (ends == (3,))


def test_end_tokens_are_ignored_with_ignore_end(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, exact)
    facts = replace(runner.facts(LEARNER), end_ids=(3,))
    sampling = Sampling(samples=4, max_tokens=TOKENS, ignore_end=True)
    assert (
        names(runner, case_of(runner, VLLM, LEARNER, learner_facts=facts, sampling=sampling)) == []
    )


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


@pytest.mark.parametrize("told", ["not told", "auto"])
def test_an_engine_without_a_reported_precision_is_not_assumed_exact(
    tmp_path: Path, told: str
) -> None:
    # A server, or a recorded run: rounding alone must not look like another checkpoint.
    runner = Scripted(tmp_path, rounding, dtypes={"vllm": told})
    learner = LEARNER.with_options(dtype="float32")
    case = case_of(runner, VLLM, learner)
    runner.refuses = lambda engine: engine.engine == "vllm"
    assert names(runner, case) == []
    runner.refuses = lambda _: True
    assert names(runner, case) == []


def test_a_quantized_file_without_other_weights(tmp_path: Path) -> None:
    def rounded(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        coarse = engine.engine == "llama_cpp" or engine.options.get("quantise") == "int4"
        return noisy(logits_NV, 0.05 * coarse, generator)

    runner = Scripted(tmp_path, rounded, dtypes={"llama_cpp": "Q4_K - Small"})
    runner.refuses = lambda engine: "quantise_only" in engine.options
    sampler = EngineSpec.of("llama_cpp", "model.gguf", {})
    learner = LEARNER.with_options(dtype="float32")
    (named,) = attribute(runner, case_of(runner, sampler, learner))
    assert (named.cause, named.confidence) == ("quantisation", "proven")
    assert "Q4_K" in named.summary


def test_what_vllm_overrides_counts_as_configuration(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen2", "rope_theta": 10000.0}')

    def turned(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        config = json.loads((Path(engine.model) / "config.json").read_text())
        config |= json.loads(str(engine.options.get("hf_overrides", "{}")))
        return noisy(logits_NV, 0.1 * (config["rope_theta"] != 10000.0), generator)

    runner = Scripted(tmp_path / "lab", turned)
    sampler = EngineSpec.of("vllm", str(model), {"hf_overrides": '{"rope_theta": 500.0}'})
    learner = EngineSpec.of("transformers", str(model), {})
    (named,) = attribute(runner, case_of(runner, sampler, learner))
    assert (named.cause, named.confidence) == ("model-config", "proven")
    assert named.details == ("rope_theta: sampler 500.0, learner 10000.0",)


@pytest.mark.slow
@pytest.mark.parametrize("heat", [0.8, 1.25])
def test_a_truncation_below_another_temperature_is_two_causes(tmp_path: Path, heat: float) -> None:
    """The kept mass shows at the sampler's temperature, not at the learner's."""

    def cut(engine: EngineSpec, logits_NV: Any, _: Any) -> Any:
        if engine.engine != "vllm":
            return logits_NV
        return processed(logits_NV, Processing(temperature=heat, top_p=0.9))

    runner = Scripted(tmp_path, cut)
    found = attribute(runner, case_of(runner, VLLM, LEARNER))
    assert {each.cause: each.confidence for each in found} == {
        "temperature": "proven", "truncation": "proven",
    }  # fmt: skip
    figures = {each.cause: each.figures for each in found}
    assert figures["temperature"]["fitted"] == pytest.approx(heat)
    assert figures["truncation"]["top_p"] == pytest.approx(0.9)


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
