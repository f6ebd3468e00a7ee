"""Whether answers are results of the numbers in their own prompt, or in another row's.

A word problem's answer is often the sum, difference, product or quotient of two of its numbers.
This needs no formula that all rows share, so it also holds in tables with several kinds of
questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.texts.alignment import (
    MAX_SHIFT,
    TURNS,
    Shift,
    displacements,
    is_significant,
)
from grpodoctor.preflight.texts.normal_form import numbers_of

_MOST_NUMBERS = 6
"""Of more numbers, some pair gives nearly any small answer."""
_MOST_LETTERS = 4000
_MIN_ROWS = 20
_MIN_SHARE = 0.5
"""Share of the rows whose answer must be a result of the prompt's numbers."""
_DIGITS = 6
"""Decimals to which results and answers are compared."""


def are_own_results(prompts: Sequence[str], answers: Sequence[float]) -> bool:
    """Whether most answers are a result of two numbers of their own prompt, beyond chance.

    Chance is the share in rows further away than answers are displaced.
    """
    results, rounded = _results(prompts), _rounded(answers)
    own = _hits(results, rounded, 0)
    return own.mean() >= _MIN_SHARE and all(
        _wins(own, _hits(results, rounded, rows)) is not None for rows in _far_rows(0)
    )


def shift_of_results(prompts: Sequence[str], answers: Sequence[float]) -> Shift | None:
    """The distance at which answers are results of a prompt's numbers, unlike in the same row."""
    if len(prompts) < _MIN_ROWS:
        return None
    results, rounded = _results(prompts), _rounded(answers)
    own = _hits(results, rounded, 0)
    best: Shift | None = None
    for rows in sorted(displacements(), key=abs):
        other = _hits(results, rounded, rows)
        counts = _wins(other, own)
        if counts is None or other.mean() < _MIN_SHARE or (best and counts[0] <= best.wins):
            continue
        if all(_wins(other, _hits(results, rounded, far)) for far in _far_rows(rows)):
            best = Shift(rows, *counts)
    return best


def _far_rows(rows: int) -> Iterable[int]:
    """Distances at which kinds of questions that take turns meet their own kind again."""
    return range(rows + MAX_SHIFT + 1, rows + MAX_SHIFT + 1 + TURNS)


def _wins(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Rows in which only the first is true, and those that differ; None without significance."""
    wins, compared = int((first & ~second).sum()), int((first != second).sum())
    return (wins, compared) if is_significant(wins, compared) else None


def _hits(results: Sequence[set[float]], answers: Sequence[float], rows: int) -> NDArray[np.bool_]:
    """Whether answer i + rows is a result of prompt i; the rows wrap around."""
    count = len(answers)
    return np.array([answers[(at + rows) % count] in each for at, each in enumerate(results)])


def _results(prompts: Sequence[str]) -> list[set[float]]:
    return [_of_two(numbers_of(each)) if len(each) < _MOST_LETTERS else set() for each in prompts]


def _of_two(numbers: Sequence[float]) -> set[float]:
    """Sums, differences, products and quotients of two numbers; empty if there are many."""
    if len(numbers) > _MOST_NUMBERS:
        return set()
    found: list[float] = []
    for first, second in combinations(numbers, 2):
        found += [first + second, first - second, second - first, first * second]
        found += [first / second] if second else []
        found += [second / first] if first else []
    return set(_rounded(found))


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, _DIGITS) for value in values]
