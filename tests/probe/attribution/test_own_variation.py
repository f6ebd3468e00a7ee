"""A side that differs from itself, for which no edit is tried."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.search.own_variation import is_own

TOKENS = 200
NUMBERS = np.random.default_rng(1)
PLAIN = np.log(NUMBERS.uniform(0.1, 0.9, TOKENS))
FEW = np.arange(0, TOKENS, 4)
OTHER = PLAIN - np.abs(NUMBERS.normal(0, 1, TOKENS))


class Engines:
    """Engines by name, each with its scores by order and repetition."""

    def __init__(self, **scores: Any) -> None:
        self._scores = scores
        learner, sampler = (
            SimpleNamespace(name=n, is_record=False) for n in ("learner", "sampler")
        )
        self.case = SimpleNamespace(learner=learner, sampler=sampler, processing=None)

    def score(
        self, engine: Any, _: Any, *, repeat: int = 0, backwards: bool = False, rollouts: Any = None
    ) -> Any:
        found = self._scores.get(engine.name)
        if found is None:
            raise EngineError("it cannot score")
        return found(repeat, backwards) if rollouts is None else found(-1, backwards)[FEW]

    def sub_sample(self, _: Any) -> Any:
        return Path("few"), FEW


def steady(_repeat: int, _backwards: bool) -> Any:
    return PLAIN


def by_order(_repeat: int, backwards: bool) -> Any:
    return OTHER if backwards else PLAIN


def by_run(repeat: int, _backwards: bool) -> Any:
    return OTHER if repeat == 2 else PLAIN


def alone(repeat: int, _backwards: bool) -> Any:
    """As an engine that sorts the batch: either order gives the same places."""
    return OTHER if repeat == -1 else PLAIN


def variant(gap: float, counted: Any = None) -> Any:
    at_N = np.ones(TOKENS, bool) if counted is None else counted
    tokens = SimpleNamespace(counted_N=at_N, learner_N=PLAIN, sampler_N=PLAIN - gap)
    return SimpleNamespace(gap=gap, tokens=tokens, setup=SimpleNamespace(behind=None))


@pytest.mark.parametrize(
    ("engines", "expected"),
    [
        ({"learner": steady, "sampler": steady}, False),
        ({"learner": by_order, "sampler": steady}, True),
        ({"learner": by_run}, True),
        ({"learner": steady, "sampler": by_run}, True),
        ({"learner": alone, "sampler": steady}, True),
        ({}, False),
    ],
)
def test_another_order_or_run_of_either_side_is_enough(engines: Any, expected: bool) -> None:
    assert is_own(Engines(**engines), variant(0.1)) is expected


def test_a_gap_much_larger_than_the_variation_needs_another_cause() -> None:
    assert not is_own(Engines(learner=by_run, sampler=steady), variant(1e3))


def test_only_the_tokens_that_are_compared_count() -> None:
    first = np.arange(TOKENS) < TOKENS // 2

    def late(_repeat: int, backwards: bool) -> Any:
        return np.where(first, PLAIN, OTHER) if backwards else PLAIN

    engines = Engines(learner=late, sampler=steady)
    assert not is_own(engines, variant(0.01, first))
    assert is_own(engines, variant(0.01, ~first))
