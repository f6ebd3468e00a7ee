"""A formula that gives most numbers of a table, and the answers that disagree with it.

Generated problems compute their answer from the numbers of the prompt. A formula of products of
these numbers that gives the answers of most rows without an error is no accident: it has far fewer
coefficients than rows. The other answers are examined for a common pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.texts.normal_form import number_of, numbers_of, words_of

_MIN_ROWS = 60
_MAX_NUMBERS = 5
_MIN_EXACT = 0.55
"""Share of rows that the formula must give. Fewer show several kinds of questions."""
_TOLERANCE = 1e-6
_MIN_OUTLIERS, _MIN_OUTLIER_SHARE = 5, 0.02
_MIN_COMMON = 0.8
"""Share of the outliers that must have the same pattern."""
_SAME_RATIO = 0.01
_MIN_FACTOR = 5.0
"""Smaller factors are discounts and taxes."""
_COUNTED_ROWS = 200
_TRIES = {1: 8, 2: 24, 3: 48}
"""Choices of rows for each formula, by its number of terms."""
_MAX_FORMULAS = 500
_SINGULAR = 1e-12
_SEPARATES = 0.5
"""Difference of the shares of two kinds of rows with a word."""
_MIN_RESULTS = 10
"""Different results that show that the formula is more than a frequent answer."""
_MAX_CHANCE, _LEVEL = 0.5, 1e-6

_INT32 = 2.0**31
_NEAR_LIMIT = 0.9

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WrongNumbers:
    """Answers that disagree with the formula of the others."""

    rows: tuple[int, ...]
    exact: int
    """Answers that the formula gives."""
    factor: float
    """By which these answers are too large; 0 if they are no multiples of the results."""
    place: int = 0
    """Number of the prompt, from 1, that these answers repeat; 0 if they are of other rows."""


def wrong_numbers(prompts: Sequence[str], answers: Sequence[str]) -> WrongNumbers | None:
    """Answers in another unit than the others, or of other rows; None if there are none."""
    values = [number_of(answer) for answer in answers]
    numbers = [numbers_of(prompt) if len(prompt) < 4000 else [] for prompt in prompts]
    sizes = Counter(
        len(each) for each, value in zip(numbers, values, strict=True) if value is not None
    )
    usable = {size: count for size, count in sizes.items() if 1 <= size <= _MAX_NUMBERS}
    if not usable:
        return None
    size = max(usable, key=lambda each: usable[each])
    rows = [at for at, value in enumerate(values) if value is not None and len(numbers[at]) == size]
    features = _features(np.array([numbers[at] for at in rows], float))
    if len(rows) < _MIN_ROWS:
        return None
    given = np.array([values[at] for at in rows], float)
    predicted = _predictions(features, given)
    if predicted is None:
        return None
    exact = _agree(predicted, given)
    outliers = np.flatnonzero(~exact)
    if len(np.unique(given[exact])) < _MIN_RESULTS or _told_by_a_word(
        [prompts[at] for at in rows], exact
    ):
        return None
    if exact.mean() < _MIN_EXACT or len(outliers) < max(
        _MIN_OUTLIERS, _MIN_OUTLIER_SHARE * len(rows)
    ):
        return None
    table = np.array([numbers[at] for at in rows], float)
    for place in range(size):
        copied = _agree(table[:, place], given)
        if copied[outliers].mean() >= _MIN_COMMON and copied[exact].mean() < _MAX_CHANCE:
            wrong = tuple(rows[at] for at in outliers)
            return WrongNumbers(wrong, int(exact.sum()), 0.0, place + 1)
    return _pattern(predicted, given, outliers, rows)


def follow_from_numbers(table: Numbers, given: Numbers, share: float) -> bool:
    """Whether one formula of a row's own numbers gives a share of the answers.

    Args:
        table: the numbers of each prompt, [rows, numbers].
        given: the answers, [rows].
        share: of the rows.
    """
    predicted = _predictions(_features(table), given)
    return predicted is not None and bool(_agree(predicted, given).mean() >= share)


def overflowed(answers: Sequence[str]) -> list[int]:
    """Negative numbers of a column that fills the range of 32 bits to both ends; else empty."""
    values = [number_of(answer) for answer in answers]
    known = [value for value in values if value is not None]
    if len(known) < _MIN_ROWS or max(map(abs, known)) > _INT32:
        return []
    fills = max(known) > _NEAR_LIMIT * _INT32 and min(known) < -_NEAR_LIMIT * _INT32
    return [at for at, value in enumerate(values) if value is not None and value < 0 and fills]


def _features(numbers: Numbers) -> Numbers:
    """One, the numbers, and the products of two and three of them, scaled to the same size."""
    places = range(numbers.shape[1])
    columns = [np.ones(len(numbers))]
    columns += [
        np.prod(numbers[:, list(chosen)], axis=1)
        for degree in (1, 2, 3)
        for chosen in combinations(places, degree)
    ]
    stacked = np.stack(columns, axis=1)
    scale = np.abs(stacked).max(axis=0)
    kept = scale > 0
    return np.asarray(stacked[:, kept] / scale[kept])


def _predictions(features: Numbers, given: Numbers) -> Numbers | None:
    """Results of the formula of one to three terms that gives most answers; None without one.

    Each formula is solved on a few random rows, which are all right often enough, and counted on
    the others.
    """
    rng = np.random.default_rng(0)
    few = rng.permutation(len(given))[:_COUNTED_ROWS]
    for terms, tries in _TRIES.items():
        best: tuple[int, tuple[int, ...], Numbers] | None = None
        formulas = list(combinations(range(features.shape[1]), terms))
        for chosen in formulas if len(formulas) <= _MAX_FORMULAS else ():
            table = features[:, chosen]
            solved = _solutions(table, given, rng.integers(len(given), size=(tries, terms)))
            if not len(solved):
                continue
            counts = _agree(table[few] @ solved.T, given[few, None]).sum(axis=0)
            at = int(counts.argmax())
            if best is None or counts[at] > best[0]:
                best = int(counts[at]), chosen, solved[at]
        if best and best[0] >= _MIN_EXACT * len(few):
            return np.asarray(features[:, best[1]] @ best[2])
    return None


def _solutions(table: Numbers, given: Numbers, rows: NDArray[np.int64]) -> Numbers:
    """Coefficients that give the answers of a few rows exactly, one set for each choice of rows."""
    equations = table[rows]
    usable = np.abs(np.linalg.det(equations)) > _SINGULAR
    if not usable.any():
        return np.empty((0, table.shape[1]))
    return np.asarray(np.linalg.solve(equations[usable], given[rows][usable][..., None])[..., 0])


def _agree(predicted: Numbers, given: Numbers) -> NDArray[np.bool_]:
    return np.asarray(np.abs(predicted - given) <= _TOLERANCE * np.maximum(np.abs(given), 1.0))


def _pattern(
    predicted: Numbers, given: Numbers, outliers: NDArray[np.int64], rows: Sequence[int]
) -> WrongNumbers | None:
    exact = len(rows) - len(outliers)
    wrong = tuple(rows[at] for at in outliers)
    expected, seen = predicted[outliers], given[outliers]
    valid = (np.abs(expected) > _TOLERANCE) & (np.abs(seen) > _TOLERANCE)
    if valid.sum() >= _MIN_COMMON * len(outliers):
        ratios = seen[valid] / expected[valid]
        factor = float(np.median(ratios))
        same = np.abs(ratios / factor - 1) < _SAME_RATIO if factor else np.zeros(len(ratios), bool)
        if same.sum() >= _MIN_COMMON * len(outliers) and not (
            1 / _MIN_FACTOR < abs(factor) < _MIN_FACTOR
        ):
            return WrongNumbers(wrong, exact, factor)
    # The results of other rows: an answer equals the prediction of another outlier or a neighbour.
    share, chance = _share_predicted(seen, expected), _chance(predicted, given)
    hits = round(share * len(seen))
    if share >= _MIN_COMMON and chance < _MAX_CHANCE and _p_value(hits, len(seen), chance) < _LEVEL:
        return WrongNumbers(wrong, exact, 0.0)
    return None


def _p_value(hits: int, tries: int, chance: float) -> float:
    from scipy.stats import binomtest

    return float(binomtest(hits, tries, chance, alternative="greater").pvalue)


def _told_by_a_word(prompts: Sequence[str], exact: NDArray[np.bool_]) -> bool:
    """Whether a word separates the rows that the formula gives from the others.

    These are then two kinds of questions, such as for metres and for kilometres.
    """
    words = [set(words_of(prompt)) for prompt in prompts]
    shares = []
    for chosen in (exact, ~exact):
        counts = Counter(word for at in np.flatnonzero(chosen) for word in words[at])
        shares.append({word: count / chosen.sum() for word, count in counts.items()})
    return any(
        abs(shares[0].get(word, 0.0) - shares[1].get(word, 0.0)) > _SEPARATES
        for word in {*shares[0], *shares[1]}
        if word.isalpha()
    )


def _share_predicted(values: Numbers, predicted: Numbers) -> float:
    ordered = np.sort(predicted)
    nearest = np.clip(np.searchsorted(ordered, values), 1, len(ordered) - 1)
    close = np.minimum(
        np.abs(ordered[nearest] - values), np.abs(ordered[nearest - 1] - values)
    ) <= _TOLERANCE * np.maximum(np.abs(values), 1.0)
    return float(close.mean())


def _chance(predicted: Numbers, given: Numbers) -> float:
    """How often the answer of one half of the rows is a prediction of the other half."""
    return _share_predicted(given[::2], predicted[1::2])
