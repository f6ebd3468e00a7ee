"""Tokens with the experts of others, and routers with another bias, as the experts show them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.causes.computation.expert_replay import shift_of
from grpodoctor.probe.attribution.causes.computation.router_bias import Fit, is_one_way
from grpodoctor.probe.attribution.tokens import Tokens

ROWS, LENGTH, LAYERS, EXPERTS, SLOTS = 20, 30, 3, 8, 2
TOKENS = ROWS * LENGTH
NUMBERS = np.random.default_rng(4)
SCORES = NUMBERS.uniform(0, 1, (TOKENS, LAYERS, EXPERTS))


def chosen(scores: Any) -> Any:
    return np.argsort(-scores, axis=-1)[..., :SLOTS].astype(np.int16)


def tokens(sampler: Any, learner: Any) -> Tokens:
    logprobs = np.full(TOKENS, -1.0)
    return Tokens(
        sampler_N=logprobs,
        learner_N=logprobs - 0.1,
        lengths_B=np.full(ROWS, LENGTH),
        prompt_B=np.arange(ROWS),
        sample_B=np.zeros(ROWS, np.int64),
        prompt_lengths_B=np.full(ROWS, 5),
        ended_B=np.zeros(ROWS, np.bool_),
        cached_B=np.zeros(ROWS, np.int64),
        counted_N=np.ones(TOKENS, np.bool_),
        sampler_experts_NLK=sampler,
        learner_experts_NLK=learner,
    )


def by_token(far: int) -> Any:
    """The experts of the tokens before in the same response."""
    rows = chosen(SCORES).reshape(ROWS, LENGTH, LAYERS, SLOTS)
    return np.roll(rows, far, axis=1).reshape(TOKENS, LAYERS, SLOTS)


@pytest.mark.parametrize("far", [1, -1, 3])
def test_experts_of_other_tokens_are_found(far: int) -> None:
    found = shift_of(tokens(by_token(far)[:, :, ::-1], chosen(SCORES)))
    assert found is not None
    assert (found.axis, found.far) == ("token", far)
    assert found.share == 1
    assert found.in_place < 0.1


def test_one_layer_is_enough_and_layers_can_be_shifted() -> None:
    mixed = chosen(NUMBERS.uniform(0, 1, SCORES.shape))
    mixed[:, 0] = by_token(1)[:, 0]
    found = shift_of(tokens(mixed, chosen(SCORES)))
    assert found is not None
    assert (found.axis, found.far) == ("token", 1)
    found = shift_of(tokens(np.roll(chosen(SCORES), 1, axis=1), chosen(SCORES)))
    assert found is not None
    assert (found.axis, found.far) == ("layer", 1)


def test_other_pairs_have_no_shift() -> None:
    plain = chosen(SCORES)
    assert shift_of(tokens(plain, plain)) is None
    assert shift_of(tokens(plain, None)) is None
    assert shift_of(tokens(chosen(NUMBERS.uniform(0, 1, SCORES.shape)), plain)) is None
    assert shift_of(tokens(chosen(SCORES + NUMBERS.normal(0, 0.1, SCORES.shape)), plain)) is None
    alike = np.zeros_like(plain) + np.arange(SLOTS, dtype=np.int16)  # every token has the same
    assert shift_of(tokens(alike, alike)) is None


BIAS = 0.1 * (-1.0) ** np.arange(EXPERTS) * np.ones((LAYERS, 1))


def test_only_a_bias_moves_each_expert_in_one_direction() -> None:
    plain = chosen(SCORES)
    assert is_one_way(tokens(chosen(SCORES + BIAS), plain))
    for size in (0.05, 0.3):
        assert not is_one_way(tokens(chosen(SCORES + NUMBERS.normal(0, size, SCORES.shape)), plain))
    assert not is_one_way(tokens(plain, plain))
    few = chosen(SCORES)
    few[:20] = chosen(SCORES + BIAS)[:20]
    assert not is_one_way(tokens(few, plain))


class _Learner:
    """Experiments with a learner that only routes."""

    case = SimpleNamespace(learner_facts=SimpleNamespace(settings={"experts": EXPERTS}))
    passes = 0

    def vary(self, variant: Any, *, edits: Any) -> Any:
        self.passes += 1
        learner = chosen(SCORES + np.array(json.loads(edits[-1][1])))
        return SimpleNamespace(tokens=tokens(variant.tokens.sampler_experts_NLK, learner))


def test_biases_are_fitted_to_the_experts_alone() -> None:
    before = SimpleNamespace(
        setup=SimpleNamespace(edits=()), tokens=tokens(chosen(SCORES + BIAS), chosen(SCORES))
    )
    learner = _Learner()
    fit = Fit(learner, before)  # type: ignore[arg-type]
    after = fit.run()
    assert after is not None
    assert before.tokens.flipped_N.mean() > 0.5
    assert after.tokens.flipped_N.mean() < 0.01
    assert fit.held_out < 0.05
    assert learner.passes <= 80
    assert "router" in fit.in_words()[0]


def test_biases_that_do_not_hold_in_other_prompts_are_none() -> None:
    """Each half of the prompts has a bias of its own."""
    odd = (np.repeat(np.arange(ROWS), LENGTH) % 2 == 1)[:, None, None]
    sampler = chosen(SCORES + np.where(odd, -BIAS, BIAS))
    before = SimpleNamespace(
        setup=SimpleNamespace(edits=()), tokens=tokens(sampler, chosen(SCORES))
    )
    assert Fit(_Learner(), before).run() is None  # type: ignore[arg-type]
