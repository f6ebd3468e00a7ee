"""Whether the kinds of answers, such as numbers and yes or no, fit the prompts of other rows.

In a table with questions of several kinds, the prompt predicts what kind of answer it has: "how
many" has a number, "is it" has yes or no. This finds displaced answers that share no word and no
size with any prompt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.texts.alignment import (
    LEVEL,
    PartialShift,
    Shift,
    best_part,
    displacements,
    is_significant,
    usual_words,
)
from grpodoctor.preflight.texts.normal_form import number_of, words_of

_MIN_ROWS = 100
"""Rows to which the prediction is fitted, for about sixty weights."""
_MIN_KIND = 0.05
"""Share of the rows that a kind must have to be one of its own."""
_RIDGE = 1.0
_LEAST = 0.02
"""Least probability of a kind: a prediction from words is never certain."""
_MAX_RATIO = 3.0
_VERDICTS = frozenset({"yes", "no", "true", "false", "valid", "invalid", "correct", "incorrect"})
_FORMULA = re.compile(r"[\\{}^=]")
_MOST_WORDS = 3


def shift_of_kinds(prompts: Sequence[str], answers: Sequence[str]) -> Shift | None:
    """The distance at which prompts predict the kinds of answers, unlike in their own rows."""
    kinds = _kinds(answers)
    if len(prompts) < _MIN_ROWS or kinds is None:
        return None
    table = _table(prompts)
    own = _logarithms(table, kinds)[np.arange(len(kinds)), kinds]
    best: Shift | None = None
    for rows in sorted(displacements(), key=abs):
        first, second = _slices(rows, len(kinds))
        other = _logarithms(table[first], kinds[second])
        gains = other[np.arange(other.shape[0]), kinds[second]] - own[first]
        wins, compared = int((gains > 0).sum()), int((gains != 0).sum())
        is_better = gains.sum() > np.log(1 / LEVEL) and is_significant(wins, compared)
        if is_better and (best is None or wins > best.wins + abs(rows)):
            best = Shift(rows, wins, compared)
    return best


def partial_shift_of_kinds(prompts: Sequence[str], answers: Sequence[str]) -> PartialShift | None:
    """The part of a table whose prompts predict the kinds of other rows' answers.

    Scored by the logarithm of the likelihood ratio of the other row's kind and the own one; of all
    parts, the best exceeds h by chance with a probability of at most the number of rows times
    exp(-h).
    """
    kinds = _kinds(answers)
    if len(prompts) < _MIN_ROWS or kinds is None:
        return None
    logarithms = _logarithms(_table(prompts), kinds)
    own = logarithms[np.arange(len(kinds)), kinds]
    best: PartialShift | None = None
    for rows in sorted(displacements(), key=abs):
        first, second = _slices(rows, len(kinds))
        ratios = np.zeros(len(kinds))
        places = np.arange(len(kinds))[first]
        ratios[first] = np.clip(
            logarithms[places, kinds[second]] - own[first], -_MAX_RATIO, _MAX_RATIO
        )
        start, stop = best_part(ratios)
        part, rest = ratios[start:stop], np.delete(ratios, np.s_[start:stop])
        wins, compared = int((part > 0).sum()), int((part != 0).sum())
        if (
            part.sum() > np.log(len(prompts) / LEVEL)
            and is_significant(wins, compared, tests=len(prompts))
            and is_significant(int((rest < 0).sum()), int((rest != 0).sum()))
            and (best is None or wins > best.shift.wins + abs(rows))
        ):
            best = PartialShift(Shift(rows, wins, compared), start, stop)
    return best


def _slices(rows: int, size: int) -> tuple[slice, slice]:
    """The prompts that have an answer at a distance, and these answers."""
    return (
        slice(max(-rows, 0), size - max(rows, 0)),
        slice(max(rows, 0), size - max(-rows, 0)),
    )


def _kinds(answers: Sequence[str]) -> NDArray[np.intp] | None:
    """The number of each answer's kind; None if all have the same kind. Rare kinds are one."""
    kinds = [_kind(answer) for answer in answers]
    frequent = [
        kind for kind, count in Counter(kinds).most_common() if count >= _MIN_KIND * len(kinds)
    ]
    if len(frequent) < 2:
        return None
    numbers = {kind: at for at, kind in enumerate(frequent)}
    return np.array([numbers.get(kind, len(frequent)) for kind in kinds])


def _kind(answer: str) -> str:
    number, words = number_of(answer), words_of(answer)
    if number is not None:
        return "whole number" if number.is_integer() else "decimal number"
    if words and words[0] in _VERDICTS and len(words) == 1:
        return "verdict"
    if len(answer.strip()) == 1:
        return "letter"
    if _FORMULA.search(answer):
        return "formula"
    return "words" if len(words) <= _MOST_WORDS else "text"


def _table(prompts: Sequence[str]) -> NDArray[np.float64]:
    """Which of the usual words each prompt has, behind a constant."""
    words = [set(words_of(text)) for text in prompts]
    usual = usual_words(words)
    return np.array([[1.0, *(float(word in each) for word in usual)] for each in words])


def _logarithms(table: NDArray[np.float64], kinds: NDArray[np.intp]) -> NDArray[np.float64]:
    """Logarithms of the probability of each kind for each prompt, by ridge regression."""
    targets = np.eye(int(kinds.max()) + 1)[kinds]
    penalty = _RIDGE * np.eye(table.shape[1])
    weights = np.linalg.solve(table.T @ table + penalty, table.T @ targets)
    chances = np.clip(table @ weights, _LEAST, None)
    return np.asarray(np.log(chances / chances.sum(axis=1, keepdims=True)))
