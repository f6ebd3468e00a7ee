"""A twenty-third set: 48 sound sets, no mistakes, with tasks and layouts that no earlier sound set has.

They were chosen, not drawn: tasks, layouts and rewards of public recipes and data sets. A seed
divides them into halves, each with six of every twelve. The author had not read the checks. They were
written before the first run.
"""

from __future__ import annotations

import random

from tests.preflight.planted.cases import Case
from tests.preflight.planted.twentieth_layouts import layout_sets
from tests.preflight.planted.twentieth_numbers import number_sets
from tests.preflight.planted.twentieth_puzzles import puzzle_sets
from tests.preflight.planted.twentieth_texts import text_sets

_SUBJECTS = (text_sets, number_sets, puzzle_sets, layout_sets)


def twentieth_healthy() -> tuple[Case, ...]:
    """Forty-eight sound sets."""
    return (*healthy_first(), *healthy_second())


def healthy_first() -> tuple[Case, ...]:
    """Twenty-four sound sets of half A."""
    return _half("A")


def healthy_second() -> tuple[Case, ...]:
    """Twenty-four sound sets of half B."""
    return _half("B")


def _half(wanted: str) -> tuple[Case, ...]:
    rng, chosen = random.Random(2301), []
    for sets in _SUBJECTS:
        cases = tuple(sets())
        halves = rng.sample("AB" * (len(cases) // 2), len(cases))
        chosen += [case for case, half in zip(cases, halves, strict=True) if half == wanted]
    return tuple(chosen)
