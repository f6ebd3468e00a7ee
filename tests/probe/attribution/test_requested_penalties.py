"""Penalties of the sampling settings, which no learner applies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpodoctor.probe.attribution.investigate import investigate
from tests.probe.attribution.cases import faulty, plain
from tests.probe.attribution.conftest import Directories, Investigate
from tests.probe.attribution.in_process import InProcess
from tests.samples import sampled

PENALTIES = {
    "repetition_penalty": (1.3, "repetition-penalty"),
    "min_tokens": (24, "min-tokens"),
    "logit_bias": (tuple((token, -3.0) for token in range(2, 12)), "logit-bias"),
}


@pytest.mark.parametrize("setting", sampled(PENALTIES, 3))
def test_one_in_the_reported_values_is_proven(
    setting: str, at: Directories, asked: Investigate
) -> None:
    value, cause = PENALTIES[setting]
    case, found = asked(plain(at.dense), plain(at.dense), sampling={setting: value})
    (named,) = found.causes
    assert (named.cause, named.confidence) == (cause, "proven"), found
    assert named.explained == pytest.approx(1.0, abs=1e-6)
    assert "the sampling settings have" in named.summary
    assert case.sampling.processors() == {setting: value}


def test_one_comes_before_a_temperature_that_is_fitted_to_what_it_changes(
    at: Directories, asked: Investigate
) -> None:
    """At the typical token another temperature imitates it."""
    sampling = {"temperature": 0.8, "repetition_penalty": 1.2}
    _, found = asked(plain(at.dense), plain(at.dense), sampling=sampling)
    (named,) = found.causes
    assert (named.cause, named.confidence) == ("repetition-penalty", "proven"), found
    assert found.left == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_several_with_a_temperature_and_a_truncation(at: Directories, asked: Investigate) -> None:
    sampling = {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.2}
    sampling |= {"presence_penalty": 0.5}
    _, found = asked(plain(at.dense), plain(at.dense), sampling=sampling)
    confidences = {named.cause: named.confidence for named in found.causes}
    assert confidences == {"sampling-penalties": "proven", "truncation": "proven"}, found


def test_one_that_the_reported_values_lack_is_proven_by_the_tokens(
    at: Directories, asked: Investigate
) -> None:
    sampling = {"repetition_penalty": 1.3}
    _, found = asked(faulty(at.dense, "raw"), plain(at.dense), sampling=sampling)
    (named,) = found.causes
    assert (named.cause, named.confidence) == ("repetition-penalty", "proven"), found
    assert "the reported log-probabilities lack it" in named.summary


@pytest.mark.slow
def test_one_without_a_measurable_effect_is_possible(at: Directories, asked: Investigate) -> None:
    sampling = {"repetition_penalty": 1.001}
    _, found = asked(faulty(at.dense, "raw"), plain(at.dense), sampling=sampling)
    (named,) = found.causes
    assert (named.cause, named.confidence) == ("repetition-penalty", "possible"), found


def test_one_that_the_sampler_ignores_is_not_named(
    at: Directories, asked: Investigate, runner: InProcess
) -> None:
    """The verdict is then unsure, whatever attribution finds."""
    case, _ = asked(plain(at.dense), plain(at.dense))
    sampling = replace(case.sampling, repetition_penalty=1.3)
    facts = replace(case.sampler_facts, processors=())
    assert investigate(runner, replace(case, sampling=sampling, sampler_facts=facts)).causes == ()
