"""Causes that the columns of log-probabilities show, such as a shift or a temperature."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.investigate import attribute, investigate
from grpodoctor.probe.contract import Processing, Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.scripted import (
    LEARNER,
    TOKENS,
    VLLM,
    Scripted,
    case_of,
    exact,
    names,
    processed,
    rounding,
)


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
