"""The effect of a known edit in a gap whose rest nothing explains."""

from __future__ import annotations

import numpy as np
import pytest

from grpodoctor.probe.attribution.search.unknown_rest import Part, part_of
from grpodoctor.probe.attribution.tokens import Floats, Tokens

PROMPTS, SAMPLES, LENGTH = 24, 3, 30
TRIED = 100


def columns(seed: int) -> tuple[np.random.Generator, Floats, Floats, Floats]:
    """The learner's values, an effect of seen tokens, and a rest that responses have in common."""
    generator = np.random.default_rng(seed)
    count = PROMPTS * SAMPLES * LENGTH
    learner_N = -generator.exponential(1.5, count)
    effect_N = np.where(generator.random(count) < 0.4, -0.3, 0.15)
    effect_N = effect_N + 0.02 * generator.standard_normal(count)
    common_N = np.repeat(generator.standard_normal(PROMPTS * SAMPLES), LENGTH)
    rest_N = 0.15 * common_N + 0.25 * generator.standard_normal(count) * np.sqrt(-learner_N)
    return generator, learner_N, effect_N, rest_N - 0.1 * learner_N


def tokens_of(learner_N: Floats, gap_N: Floats) -> Tokens:
    rows = PROMPTS * SAMPLES
    whole = np.full(rows, LENGTH)
    return Tokens(
        sampler_N=learner_N + gap_N,
        learner_N=learner_N,
        lengths_B=whole,
        prompt_B=np.repeat(np.arange(PROMPTS), SAMPLES),
        sample_B=np.tile(np.arange(SAMPLES), PROMPTS),
        prompt_lengths_B=whole,
        ended_B=np.zeros(rows, np.bool_),
        cached_B=np.zeros(rows, np.int64),
        counted_N=np.ones(learner_N.size, np.bool_),
    )


def part(size: float, seed: int = 0) -> Part:
    _, learner_N, effect_N, rest_N = columns(seed)
    found = part_of(tokens_of(learner_N, size * effect_N + rest_N), effect_N)
    assert found is not None
    return found


def test_an_effect_of_its_predicted_size_is_accepted() -> None:
    found = part(1.0)
    assert found.size == pytest.approx(1.0, abs=3 * found.error)
    assert found.is_accepted(TRIED)


@pytest.mark.parametrize("size", [0.3, 2.0, -1.0])
def test_an_effect_of_another_size_is_not(size: float) -> None:
    found = part(size)
    assert abs(found.z) > 5
    assert not found.is_accepted(TRIED)


def test_a_rest_alone_contains_no_effect() -> None:
    zs = [part(0.0, seed).z for seed in range(60)]
    assert not any(part(0.0, seed).is_accepted(TRIED) for seed in range(60))
    assert np.std(zs) == pytest.approx(1.0, abs=0.3)  # although tokens of a response are alike


def test_what_a_tokens_own_probability_predicts_is_no_evidence() -> None:
    """Two models differ most in unlikely tokens, as under two temperatures."""
    _, learner_N, _, rest_N = columns(0)
    effect_N = -0.2 * learner_N
    found = part_of(tokens_of(learner_N, effect_N + rest_N), effect_N)
    assert found is not None
    assert not found.is_accepted(TRIED)


def test_an_effect_in_one_half_of_the_prompts_is_not_accepted() -> None:
    _, learner_N, effect_N, rest_N = columns(0)
    is_first_N = np.arange(learner_N.size) // (SAMPLES * LENGTH) % 2 == 0
    gap_N = np.where(is_first_N, 1.4, -0.3) * effect_N + rest_N
    found = part_of(tokens_of(learner_N, gap_N), effect_N)
    assert found is not None
    assert not found.is_accepted(TRIED)
