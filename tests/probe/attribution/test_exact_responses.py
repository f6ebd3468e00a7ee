"""Responses that an experiment makes equal show its cause, whatever the others do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.exact_responses import (
    closed_responses,
    effective_gap,
    exact_responses,
    part_share,
)
from grpodoctor.probe.attribution.investigate import investigate
from grpodoctor.probe.attribution.search.edit_gaps import part_regression, regression
from grpodoctor.probe.attribution.search.subsets import rest_of
from grpodoctor.probe.attribution.tokens import Floats, Integers, Tokens
from grpodoctor.probe.contract import Response
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.scripted import SAMPLES, case_of
from tests.probe.attribution.test_several_causes import (
    LEARNER,
    SAMPLER,
    TwoErrors,
    confidences,
    plain,
)

RESPONSES, LENGTH, LIMIT = 60, 30, 2e-9
HALF_B = np.arange(RESPONSES) % 2 == 0


def tokens(errors_N: Floats, lengths_B: Integers | None = None) -> Tokens:
    """Responses, three of a prompt, whose learner has errors."""
    lengths_B = np.full(RESPONSES, LENGTH) if lengths_B is None else lengths_B
    numbers_B = np.arange(lengths_B.size)
    return Tokens(
        sampler_N=np.full(errors_N.size, -1.0),
        learner_N=-1.0 + errors_N,
        lengths_B=lengths_B,
        prompt_B=numbers_B // 3,
        sample_B=numbers_B % 3,
        prompt_lengths_B=np.full(lengths_B.size, 7),
        ended_B=np.zeros(lengths_B.size, np.bool_),
        cached_B=np.zeros(lengths_B.size, np.int64),
        counted_N=np.ones(errors_N.size, np.bool_),
    )


@pytest.fixture
def errors_N() -> Floats:
    return np.random.default_rng(1).normal(0, 0.2, RESPONSES * LENGTH)


def in_half(errors_N: Floats, factor: float) -> Floats:
    """The errors, times a factor in every second response."""
    return errors_N * np.where(np.repeat(HALF_B, LENGTH), factor, 1.0)


def test_responses_that_become_equal_are_no_chance(errors_N: Floats) -> None:
    before, after = tokens(errors_N), tokens(in_half(errors_N, 1e-6))
    found = exact_responses(before, after, LIMIT, tries=3000)
    assert found is not None
    assert np.array_equal(found.exact_B, HALF_B)
    assert found.words == "30 of 60 responses that differed"
    assert found.nats > 100


def test_a_wrong_change_makes_no_response_equal(errors_N: Floats) -> None:
    """However much it lowers the gap, and although some tokens agree by chance."""
    others_N = np.random.default_rng(2).normal(0, 0.2, errors_N.size)
    before = tokens(errors_N)
    for wrong_N in (0.3 * errors_N, others_N, in_half(errors_N, 0.05)):
        assert exact_responses(before, tokens(wrong_N), LIMIT) is None


def test_a_gap_near_rounding_that_falls_a_little_shows_nothing(errors_N: Floats) -> None:
    """Half of the responses fall below the limit, which says nothing about the change."""
    before, after = tokens(errors_N), tokens(0.5 * errors_N)
    limit = float(np.median(after.gap_B)) / LENGTH
    assert exact_responses(before, after, limit) is None


def test_short_responses_become_equal_by_chance() -> None:
    """A twentieth of the tokens agree by chance, and so do a twentieth of these responses."""
    generator = np.random.default_rng(3)
    lengths_B = np.ones(400, np.int64)
    before = tokens(generator.normal(0, 0.2, 400), lengths_B)
    after = tokens(generator.normal(0, 0.2, 400), lengths_B)
    limit = 0.5 * 0.02**2
    equal = (after.terms_N <= limit) & (before.terms_N > limit)
    assert equal.sum() > 10
    assert exact_responses(before, after, limit) is None


def test_the_responses_that_fit_best_are_compared_if_their_gap_is_gone(errors_N: Floats) -> None:
    before, part = tokens(errors_N), tokens(in_half(errors_N, 0.01))
    assert part_share(before, part, LIMIT) > 0.999
    assert effective_gap(before, part, LIMIT) < 0.01 * before.gap
    less = tokens(in_half(errors_N, 0.5))
    assert part_share(before, less, LIMIT) == pytest.approx(0.75, abs=0.01)
    assert effective_gap(before, less, LIMIT) == less.gap
    assert np.array_equal(closed_responses(before, part, LIMIT), HALF_B)


def test_one_response_is_too_few(errors_N: Floats) -> None:
    first_N = np.arange(errors_N.size) < LENGTH
    one = tokens(np.where(first_N, 0.0, errors_N))
    assert exact_responses(tokens(errors_N), one, LIMIT) is None
    assert part_share(tokens(errors_N), one, LIMIT) < 0.01


def test_the_search_goes_on_in_the_responses_that_still_differ(errors_N: Floats) -> None:
    before, after = tokens(errors_N), tokens(in_half(errors_N, 0.0))
    rest = rest_of(after, exact_responses(before, after, LIMIT))
    assert rest is not None
    assert np.array_equal(rest.responses_B, ~HALF_B)
    assert rest_of(after, None) is None
    every = tokens(0.0 * errors_N)
    assert rest_of(every, exact_responses(before, every, LIMIT)) is None


def test_the_regression_finds_a_number_in_the_responses_without_a_second_fault(
    errors_N: Floats,
) -> None:
    """The second fault carries nearly all of the variance of all responses."""
    rows_N = np.repeat(np.arange(RESPONSES), LENGTH)
    others_N = np.random.default_rng(4).normal(0, 2.0, errors_N.size)
    missing_N = 0.6 * errors_N + np.where(np.repeat(HALF_B, LENGTH), 0.0, others_N)
    assert regression(missing_N, errors_N, 3.0)[1] < 0.1
    assert part_regression(missing_N, errors_N, rows_N, 3.0) == pytest.approx((0.6, 1.0))
    partly_N = errors_N + others_N / 10  # every response fits by the same half
    assert part_regression(partly_N, errors_N, rows_N, 3.0) == (0.0, 0.0)
    assert part_regression(missing_N[:60], errors_N[:60], rows_N[:60], 3.0) == (0.0, 0.0)


class MostHot(TwoErrors):
    """Three in five responses, without a property of their own, are sampled hotter."""

    def seen(self, engine: EngineSpec, response: Response) -> Any:
        number = SAMPLES * response.prompt + response.sample
        is_hot = engine.engine == "vllm" and (number * number) % 5 in (0, 1)
        return super().seen(engine, response) / (1.6 if is_hot else 1.0)


def test_a_cause_of_all_responses_is_proven_by_those_without_a_second_fault(
    tmp_path: Path,
) -> None:
    """Neither the mean nor the typical token shows it: three in five have the other fault."""
    runner = MostHot(tmp_path, plain, sizes=(0.3, 0.0))
    found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
    assert confidences(found) == {"activation": "proven", "temperature": "proven"}
    first = next(each for each in found.causes if each.cause == "activation")
    assert any("responses that differed" in each for each in first.details)
