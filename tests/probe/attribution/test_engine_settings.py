"""Causes in the settings of an engine: precision, layout, caches, quantisation, config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.investigate import attribute, investigate
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.scripted import (
    BFLOAT16,
    LEARNER,
    VLLM,
    Scripted,
    case_of,
    exact,
    names,
    noisy,
    rounding,
)


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


def test_prefix_caching_of_long_prompts_alone_is_only_likely(tmp_path: Path) -> None:
    """A fault of long prompts, as one of chunked prefill, shows the same."""

    def long(response: Any) -> None:
        cached(2)(response)
        response.prompt_ids = [*response.prompt_ids, *[9] * response.cached]

    runner = Scripted(tmp_path, exact)
    (named,) = attribute(runner, case_of(runner, VLLM, LEARNER, told=long))
    assert (named.cause, named.confidence) == ("prefix-caching", "likely")


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
