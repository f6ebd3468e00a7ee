"""Another mechanism with the same evidence: a cause is not proven where it would be wrong."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax

from grpodoctor.probe.attribution.base import Hypothesis
from grpodoctor.probe.attribution.causes.computation.prefix_caching import (
    _differ_from_as_long as differ_from_as_long,
)
from grpodoctor.probe.attribution.causes.computation.what_if import rivals_of
from grpodoctor.probe.attribution.causes.sampling.processors import (
    _deviation_under as deviation_under,
)
from grpodoctor.probe.attribution.causes.tokens.hidden_prompt import HiddenPrompt
from grpodoctor.probe.attribution.causes.tokens.masked_tokens import MaskedTokens
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.investigate import attribute
from grpodoctor.probe.attribution.search.edit_search import Candidate
from grpodoctor.probe.attribution.tokens import Tokens, of_columns
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.contract import Processing, Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import NamedCause
from tests.probe.attribution.cases import faulty, measured, plain
from tests.probe.attribution.conftest import Directories
from tests.probe.attribution.faulty import BOS
from tests.probe.attribution.in_process import InProcess
from tests.probe.attribution.scripted import (
    BFLOAT16,
    LEARNER,
    SAMPLES,
    TOKENS,
    VLLM,
    VOCABULARY,
    Scripted,
    case_of,
    exact,
    noisy,
    processed,
    truth,
)


def only(runner: Scripted, case: Any, cause: str) -> NamedCause:
    (found,) = [each for each in attribute(runner, case) if each.cause == cause]
    return found


@pytest.mark.parametrize(("fault", "confidence"), [(0.03, "proven"), (0.5, "likely")])
def test_a_fault_of_the_kernel_of_one_precision(
    tmp_path: Path, fault: float, confidence: str
) -> None:
    """In float32 the engine chooses another kernel, without the fault."""

    def logits(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        dtype = engine.options.get("dtype", "bfloat16" if engine.engine == "vllm" else "float32")
        if dtype == "float32":
            return logits_NV
        draws = np.random.default_rng((generator.integers(1 << 30), len(engine.engine)))
        return noisy(logits_NV, fault if engine.engine == "vllm" else BFLOAT16, draws)

    runner = Scripted(tmp_path, logits, dtypes={"vllm": "bfloat16"})
    found = only(runner, case_of(runner, VLLM, LEARNER), "precision")
    assert found.confidence == confidence, found
    assert ("rounding alone causes" in found.summary) is (confidence == "likely")


def cached_tokens(is_cached: Any, is_off: Any) -> Tokens:
    """Eight prompts of four samples, of which some are cached, and some differ."""
    prompt_B, sample_B = np.repeat(np.arange(8), 4), np.tile(np.arange(4), 8)
    off_B = is_off(prompt_B, sample_B)
    learner_N = np.full(32 * 5, -1.0)
    lengths_B = np.full(32, 5)
    tokens = of_columns(learner_N, learner_N - 0.5 * np.repeat(off_B, 5), lengths_B)
    return replace(
        tokens,
        prompt_B=prompt_B,
        sample_B=sample_B,
        prompt_lengths_B=np.full(32, 10),
        cached_B=16 * is_cached(prompt_B, sample_B),
    )


def test_a_fault_of_later_samples_is_not_one_of_the_prefix_cache() -> None:
    """The first sample of each prompt is the only one whose prompt is not cached."""
    tokens = cached_tokens(lambda _, sample: sample > 0, lambda _, sample: sample > 0)
    assert not differ_from_as_long(tokens)
    tokens = cached_tokens(lambda prompt, _: prompt > 3, lambda prompt, _: prompt > 3)
    assert differ_from_as_long(tokens)


def values_of(logits: Any) -> Any:
    """Reports the values of the model itself, whatever the tokens are drawn from."""

    def told(response: Any) -> None:
        true_NV = truth(0, response.prompt, response.sample)
        logprobs_NV = log_softmax(logits(true_NV), axis=-1)
        response.logprobs = logprobs_NV[np.arange(TOKENS), response.response_ids].tolist()

    return told


@pytest.mark.parametrize(("imitated", "confidence"), [(False, "proven"), (True, "likely")])
def test_tokens_at_another_temperature_do_not_prove_a_truncation(
    tmp_path: Path, imitated: bool, confidence: str
) -> None:
    """Below a lower temperature, too, hardly any token is outside of the requested top-p."""

    def drawn(engine: EngineSpec, logits_NV: Any, _: Any) -> Any:
        if engine.engine != "vllm":
            return logits_NV
        return logits_NV / 0.6 if imitated else processed(logits_NV, Processing(top_p=0.96))

    runner = Scripted(tmp_path, drawn)
    sampling = Sampling(samples=SAMPLES, max_tokens=TOKENS, top_p=0.96)
    told = values_of(lambda logits_NV: logits_NV)
    case = case_of(runner, VLLM, LEARNER, told=told, sampling=sampling)
    found = [each for each in attribute(runner, case) if each.cause == "raw-logprobs"]
    assert [each.confidence for each in found] == [confidence], found


def hot(engine: EngineSpec, logits_NV: Any, _: Any) -> Any:
    return logits_NV * (0.5 if engine.engine == "vllm" else 1.0)


@pytest.mark.parametrize(
    ("config", "asked", "words"),
    [
        ({}, 2.0, "use different temperatures"),
        ({}, 1.0, "scale logits differently (temperature)"),
        ({"logits_scaling": 2.0}, 1.0, "one side may ignore logits_scaling"),
        ({"logits_scaling": 5.0}, 1.0, "scale logits differently (temperature)"),
    ],
)
def test_a_factor_on_logits_is_named_with_the_temperature(
    tmp_path: Path, config: dict[str, float], asked: float, words: str
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    learner = EngineSpec.of("transformers", str(tmp_path / "model"), {})
    runner = Scripted(tmp_path / "runner", hot)
    sampling = Sampling(samples=SAMPLES, max_tokens=TOKENS, temperature=asked)
    found = only(runner, case_of(runner, VLLM, learner, sampling=sampling), "temperature")
    assert found.confidence == "proven"
    assert words in found.title


@pytest.mark.parametrize(("age", "confidence"), [(0.0, "proven"), (0.3, "likely")])
def test_an_older_quantized_checkpoint_is_not_proven_to_differ_by_its_format(
    tmp_path: Path, age: float, confidence: str
) -> None:
    """The experiment loads the other side's files, which differ by their age, too."""
    quantized = {"quantization_config": {"bits": 8, "quant_method": "gptq"}}
    for name, config in (("packed", quantized), ("plain", {})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"model_type": "llama"} | config))

    def logits(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
        seed = generator.integers(1 << 30)
        is_packed = engine.model.endswith("packed")
        if is_packed or engine.options.get("quantise"):
            logits_NV = noisy(logits_NV, 0.15, np.random.default_rng((seed, 1)))
        return noisy(logits_NV, age * is_packed, np.random.default_rng((seed, 2)))

    runner = Scripted(tmp_path / "runner", logits)
    sampler = EngineSpec.of("vllm", str(tmp_path / "packed"), {})
    learner = EngineSpec.of("transformers", str(tmp_path / "plain"), {})
    found = only(runner, case_of(runner, sampler, learner), "quantisation")
    assert found.confidence == confidence, found
    assert any("also older" in line for line in found.details) is (confidence == "likely")


def drawn_tokens(logits_NV: Any, ids_N: Any) -> Tokens:
    """Tokens with the columns of a model with these logits."""
    logprobs_NV, at = log_softmax(logits_NV, axis=-1), np.arange(ids_N.size)
    own_N = logprobs_NV[at, ids_N]
    above_NV = logprobs_NV > own_N[:, None]
    order_NM = np.argsort(-logprobs_NV, axis=-1)[:, :20]
    return replace(
        of_columns(own_N, own_N, np.full(ids_N.size // TOKENS, TOKENS)),
        surplus_N=own_N - (np.exp(logprobs_NV) * logprobs_NV).sum(-1),
        rank_N=above_NV.sum(-1),
        mass_above_N=(np.exp(logprobs_NV) * above_NV).sum(-1),
        top_logprob_N=logprobs_NV.max(-1),
        likeliest_NM=order_NM,
        likeliest_logprob_NM=np.take_along_axis(logprobs_NV, order_NM, axis=-1),
        ids_N=ids_N,
    )


@pytest.mark.parametrize("window", [TOKENS, 1])
def test_a_processor_is_proven_only_if_the_tokens_follow_it(window: int) -> None:
    """A penalty on the last tokens alone makes them likelier under one on all of them, too."""
    generator = np.random.default_rng(3)
    penalty, rows = 1.5, 60
    logits_NV = np.concatenate([truth(1, row, 0) for row in range(rows)])
    under_NV, ids = logits_NV.copy(), []
    for place in range(rows * TOKENS):
        start = place - place % TOKENS
        row_V = logits_NV[place].copy()
        row_V[list(set(ids[max(start, place - window) : place]))] -= penalty
        under_NV[place, list(set(ids[start:place]))] -= penalty
        ids.append(int(generator.choice(VOCABULARY, p=np.exp(log_softmax(row_V)))))
    under = drawn_tokens(under_NV, np.array(ids))
    plain = drawn_tokens(logits_NV, np.array(ids))
    experiments: Any = SimpleNamespace(
        columns=lambda *_: under,
        case=SimpleNamespace(sampling=Sampling(), learner=LEARNER),
        dtypes=("float32", "float32"),
    )
    variant = Variant(Setup(LEARNER, Processing()), plain)
    found = deviation_under(experiments, variant, ("presence_penalty", "1.5"), 6.0)
    assert bool(found) is (window == 1), found


def test_edits_that_leave_less_than_the_rounding_of_float32_are_rivals() -> None:
    def candidate(edit: tuple[str, str], error: float) -> Candidate:
        learner_N = np.full(60, -1.0)
        tokens = of_columns(learner_N, learner_N + error, np.full(12, 5))
        tokens = replace(tokens, prompt_B=np.arange(12))
        after = Variant(Setup(LEARNER, Processing()), tokens)
        return Candidate(edit, after, tokens.gap)

    best = candidate(("rope_base", "500.0"), 1e-7)
    same = candidate(("norm_epsilon", "0.01"), 3e-5)
    other = candidate(("norm_epsilon", "0.01"), 3e-3)
    assert rivals_of(best, [best, same]) == [same]
    assert rivals_of(best, [best, other]) == []


def test_a_lost_first_token_is_not_proven_to_be_masked(at: Directories, tmp_path: Path) -> None:
    """A token that begins every prompt, and that nothing sees, is the same as none."""
    model = shutil.copytree(at.dense, tmp_path / "model")
    config = json.loads((model / "config.json").read_text()) | {"bos_token_id": BOS}
    (model / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(4)
    ids = [[BOS, *random.integers(7, 19, random.integers(5, 12)).tolist()] for _ in range(16)]
    with InProcess(tmp_path / "runner", [{"ids": each} for each in ids]) as runner:
        sampling = Sampling(samples=2, max_tokens=24)
        case = measured(runner, faulty(model, "first_lost"), plain(model), sampling)
        experiments = Experiments(runner, case)
        masked = MaskedTokens().experiment(experiments, experiments.first(), Hypothesis(1.0))
        prompt = HiddenPrompt().experiment(experiments, experiments.first(), Hypothesis(1.0))
    assert masked is not None
    assert prompt is not None
    assert masked.after is not None
    assert masked.after.gap < 1e-9
    for result in (masked, prompt):
        assert result.identity is not None
        assert result.identity.id == "prompt-ids"
        assert result.identity.title == (
            "The sampler reads prompts without their first token, or masks it"
        )


def test_titles_name_both_of_two_mechanisms_with_one_effect() -> None:
    values = cause_of(("kv_cache", json.dumps("values in int8"))).title
    assert "cache, or output of the projection" in values
    rotary = cause_of(("site_scale", json.dumps(["^model.rotary_emb/out", 0.7])))
    assert rotary.id == "rope-scaling"
    assert "adds nothing from" in cause_of(("output_scale", json.dumps(["mlp", 0.0]))).title


def test_sound_tokens_prove_nothing(tmp_path: Path) -> None:
    """A truncation was requested, and neither the tokens nor the reported values have it."""
    runner = Scripted(tmp_path, exact)
    sampling = Sampling(samples=SAMPLES, max_tokens=TOKENS, top_p=0.96)
    case = case_of(runner, VLLM, LEARNER, sampling=sampling)
    assert not [each for each in attribute(runner, case) if each.confidence == "proven"]
