"""Chance is not taken for a fall of the gap, and a fall is not taken for chance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from grpodoctor.probe.attribution.tokens import FALSE_POSITIVES, falls, significant
from tests.benchmarks.bench_significance import NULLS, Null, rate
from tests.samples import sampled

TRIALS = 250


@dataclass(frozen=True)
class Gaps:
    """The part of `Tokens` that the test of significance reads."""

    gap_B: Any
    prompt_B: Any
    counted_N: Any = field(default_factory=lambda: np.ones(1, np.bool_))

    @property
    def gap(self) -> float:
        """The mean gap."""
        return float(self.gap_B.mean())


def gaps(fallen: list[float], of_prompt: int = 1) -> tuple[Any, Any]:
    """The gaps of responses before and after they fell."""
    prompt_B = np.arange(len(fallen)) // of_prompt
    return Gaps(np.full(len(fallen), 50.0), prompt_B), Gaps(50.0 - np.array(fallen), prompt_B)


@pytest.mark.parametrize(
    ("fallen", "is_significant"),
    [
        ([0.1] * 40 + [-5.0], False),  # the mean grew
        ([0.1] * 40 + [30.0, -20.0], True),  # nearly all fell; two carry the mean and its error
        ([0.1, -0.1] * 20 + [30.0], False),  # one response fell, the others did not
        ([1.0, 0.9] * 10, True),
        ([1.0], False),
        ([1.0, 0.9] * 4, False),  # as often as once in 256 by chance
    ],
)
def test_a_fall_at_most_prompts_is_no_chance(fallen: list[float], is_significant: bool) -> None:
    assert significant(*gaps(fallen)) is is_significant


def test_copies_of_a_response_count_once() -> None:
    fallen = [0.1] * 24
    assert significant(*gaps(fallen))
    assert not significant(*gaps(fallen, of_prompt=8))


def test_a_gap_that_disappears_is_no_chance_at_few_prompts() -> None:
    assert falls(*gaps([46.0, 47.0]))
    assert not falls(*gaps([40.0, 41.0]))
    assert falls(*gaps([1.0, 0.9] * 10))


@pytest.mark.parametrize("null", sampled(NULLS, 2), ids=lambda null: null.name)
@pytest.mark.parametrize("shape", [(2, 1), (4, 1), (2, 8), (16, 4)], ids=str)
def test_equal_errors_seldom_differ(null: Null, shape: tuple[int, int]) -> None:
    hits = rate(null, *shape, TRIALS)
    assert binom.sf(hits - 1, TRIALS, FALSE_POSITIVES) > 1e-5
