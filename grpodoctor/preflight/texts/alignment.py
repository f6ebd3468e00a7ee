"""Whether the answers of a table belong to the prompts of other rows.

Both tests compare each prompt with the answer of its own row and with the answer of a row nearby.
They need no model of the task: if the answers are those of another row, prompt and answer have more
in common at that distance than in the same row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.texts.normal_form import numbers_of, words_of

MAX_SHIFT = 3
"""Rows by which answers may be displaced."""
_MIN_ROWS = 20
"""Fewer comparisons cannot reach the level of significance."""
_MIN_SHARE = 0.75
"""Share of the decided comparisons that the other row must win."""
_LEVEL = 1e-6
"""Probability of a false finding of one test; a few columns and shifts are tested."""
_UNRELATED = 0.01
"""Probability above which an answer is not related to its own prompt."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Answers that fit the prompts of other rows better than their own."""

    rows: int
    """Distance: the answer of row i belongs to the prompt of row i - rows."""
    wins: int
    """Comparisons in which the other row's prompt fits better."""
    compared: int


def shift_of_words(prompts: Sequence[str], answers: Sequence[str]) -> Shift | None:
    """The distance at which prompts and answers share more rare words than in the same row."""
    if len(prompts) < _MIN_ROWS:
        return None
    prompt_words = [set(words_of(text)) for text in prompts]
    answer_words = [set(words_of(text)) for text in answers]
    counts: dict[str, int] = {}
    for words in prompt_words:
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    weights = {word: np.log(len(prompts) / count) for word, count in counts.items()}
    own = _shared(prompt_words, answer_words, weights, 0)
    best: Shift | None = None
    for rows in _shifts():
        other = _shared(prompt_words, answer_words, weights, rows)
        valid = ~np.isnan(other)
        wins = int((other[valid] > own[valid]).sum())
        compared = wins + int((other[valid] < own[valid]).sum())
        if _is_significant(wins, compared) and (best is None or wins > best.wins):
            best = Shift(rows, wins, compared)
    return best


def _shifts() -> list[int]:
    return [rows for rows in range(-MAX_SHIFT, MAX_SHIFT + 1) if rows]


def _shared(
    prompts: list[set[str]], answers: list[set[str]], weights: dict[str, float], rows: int
) -> NDArray[np.float64]:
    """Weight of the words that prompt i shares with answer i + rows; NaN without such a row."""
    shared = np.full(len(prompts), np.nan)
    for index in range(len(prompts)):
        if 0 <= index + rows < len(answers):
            common = prompts[index] & answers[index + rows]
            shared[index] = sum(weights[word] for word in common)
    return shared


def _is_significant(wins: int, compared: int) -> bool:
    from scipy.stats import binomtest

    if compared < _MIN_ROWS or wins < _MIN_SHARE * compared:
        return False
    return float(binomtest(wins, compared, 0.5, alternative="greater").pvalue) < _LEVEL


def shift_of_sizes(prompts: Sequence[str], answers: Sequence[float]) -> Shift | None:
    """The distance at which the size of an answer follows from the numbers in a prompt.

    None if the sizes of the answers are related to those in their own prompts.
    """
    if len(prompts) < _MIN_ROWS:
        return None
    sizes = np.log1p(np.abs(np.asarray(answers, float)))
    features = np.array([_sizes(text) for text in prompts])
    related = [_correlation(feature, sizes, 0) for feature in features.T]
    if min(p_value for _, p_value in related) < _UNRELATED:
        return None
    best: tuple[float, Shift] | None = None
    for rows in _shifts():
        for feature in features.T:
            strength, p_value = _correlation(feature, sizes, rows)
            if p_value < _LEVEL and (best is None or strength > best[0]):
                compared = len(sizes) - abs(rows)
                best = strength, Shift(rows, compared, compared)
    return best[1] if best else None


def _sizes(text: str) -> tuple[float, float, float]:
    """Logarithms of the largest number, the sum and the product of the numbers in a text."""
    numbers = np.abs(np.array(numbers_of(text) or [0.0]))
    logs = np.log1p(numbers)
    return float(logs.max()), float(np.log1p(numbers.sum())), float(logs.sum())


def _correlation(
    feature: NDArray[np.float64], sizes: NDArray[np.float64], rows: int
) -> tuple[float, float]:
    """Rank correlation of prompt i with answer i + rows, and its p-value."""
    from scipy.stats import spearmanr

    first = feature[max(-rows, 0) : len(feature) - max(rows, 0)]
    second = sizes[max(rows, 0) : len(sizes) - max(-rows, 0)]
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0, 1.0
    result = spearmanr(first, second)
    return abs(float(result.statistic)), float(result.pvalue)
