"""Whether the answers of a table belong to the prompts of other rows.

Both tests compare each prompt with the answer of its own row and with the answer of a row nearby.
They need no model of the task: if the answers are those of another row, prompt and answer have more
in common at that distance than in the same row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpodoctor.preflight.texts.normal_form import numbers_of, words_of

MAX_SHIFT = 3
"""Rows by which answers may be displaced."""
_MIN_ROWS = 20
"""Fewer comparisons cannot reach the level of significance."""
TURNS = 12
"""Kinds of questions that may take turns in a table."""
_MIN_SHARE = 0.75
"""Share of the decided comparisons that the other row must win."""
LEVEL = 1e-6
"""Probability of a false finding of one test; a few columns and shifts are tested."""
_LOSS = 3.0
"""Wins that one lost comparison weighs in the search for a displaced part, as in `_MIN_SHARE`."""
_UNRELATED = 0.01
"""Probability above which an answer is not related to its own prompt."""
_FAR_LEVEL, _FAR_ERRORS = 1e-3, 3.0
"""Level from which rows further away are related too, and by how many standard errors of Fisher's
transform the correlation of a displacement must then exceed theirs."""
_NEARLY_ONE = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Shift:
    """Answers that fit the prompts of other rows better than their own."""

    rows: int
    """Distance: the answer of row i belongs to the prompt of row i - rows."""
    wins: int
    """Comparisons in which the other row's prompt fits better."""
    compared: int


_MIN_PREDICTED = 100
"""Rows to which a prediction is fitted, for about seventy weights of a ridge regression."""
_MAX_WORDS, _USUAL = 60, (0.03, 0.9)
"""Words whose presence predicts, and the share of prompts that must have one."""
_FIRST_NUMBERS = 5
"""Numbers of a prompt whose sizes predict one by one."""
_RIDGE = 1.0
"""Penalty of the squared weights: as much as one row counts."""
_SMOOTH = 0.3
"""Correlation of consecutive errors from which answers follow the order of the rows."""
_MAX_RATIO = 3.0
"""Bound of one row's logarithm, so that a few wrong predictions do not decide."""
_MIN_PREDICTED_SHARE = 0.6
"""Share of the rows that a prediction must decide for the other answer; it is less certain than
words in common."""


@dataclass(frozen=True, slots=True)
class PartialShift:
    """A displacement of a part of the rows."""

    shift: Shift
    start: int
    stop: int
    """The first row of the part, and the first one behind it."""


def shift_of_words(prompts: Sequence[str], answers: Sequence[str]) -> Shift | None:
    """The distance at which prompts and answers share more rare words than in the same row."""
    if len(prompts) < _MIN_ROWS:
        return None
    own, others = _fits(prompts, answers)
    best: Shift | None = None
    for rows, other in others.items():
        valid = ~np.isnan(other)
        wins = int((other[valid] > own[valid]).sum())
        compared = wins + int((other[valid] < own[valid]).sum())
        if (
            is_significant(wins, compared)
            and (best is None or wins > best.wins)
            and _beats_far_rows(prompts, answers, rows)
        ):
            best = Shift(rows, wins, compared)
    return best


def _beats_far_rows(prompts: Sequence[str], answers: Sequence[str], rows: int) -> bool:
    """Whether the other row's answer also fits better than those of rows further away.

    Some answers never occur in their own prompt, so that any other row fits better. If kinds of
    questions take turns, a row of the right kind fits better; at one of several consecutive
    distances, the kind is the same.
    """
    _, others = _fits(prompts, answers, shifts=(rows,))
    valid = ~np.isnan(others[rows])
    near = range(rows + MAX_SHIFT + 1, rows + MAX_SHIFT + 1 + TURNS)
    for cut in (len(prompts) // 2, *near):
        own, _ = _fits(prompts, [*answers[cut:], *answers[:cut]], shifts=())
        wins = int((others[rows][valid] > own[valid]).sum())
        if not is_significant(wins, wins + int((others[rows][valid] < own[valid]).sum())):
            return False
    return True


def partial_shift_of_words(prompts: Sequence[str], answers: Sequence[str]) -> PartialShift | None:
    """The longest part of a table in which prompts share more rare words with other rows' answers.

    In the rest of the table, prompts and answers of the same row must fit better.
    """
    own, others = _fits(prompts, answers)
    best: PartialShift | None = None
    for rows, other in others.items():
        valid = ~np.isnan(other)
        scores = np.where(valid & (other > own), 1.0, 0.0)
        scores -= np.where(valid & (other < own), _LOSS, 0.0)
        start, stop = best_part(scores)
        wins = int((scores[start:stop] > 0).sum())
        compared = wins + int((scores[start:stop] < 0).sum())
        rest = np.delete(scores, np.s_[start:stop])
        fits_elsewhere = (rest < 0).sum() > (rest > 0).sum()
        if not (fits_elsewhere and is_significant(wins, compared, tests=len(prompts))):
            continue
        if (best is None or wins > best.shift.wins) and _beats_far_rows(
            prompts[start:stop], answers[start:stop], rows
        ):
            best = PartialShift(Shift(rows, wins, compared), start, stop)
    return best


def partial_shift_of_sizes(prompts: Sequence[str], answers: Sequence[float]) -> PartialShift | None:
    """The part of a table whose prompts predict the size of other rows' answers better.

    The prediction is a linear one from the sizes of a prompt's numbers and its frequent words. It
    is fitted to the whole table, of which a displaced part is a minority. A part is scored by the
    logarithm of the likelihood ratio of the other row's answer and the own one, for errors with a
    Laplace distribution; of all parts of the table, the best exceeds h by chance with a probability
    of at most the number of rows times exp(-h).
    """
    if len(prompts) < _MIN_PREDICTED:
        return None
    sizes = np.log1p(np.abs(np.asarray(answers, float)))
    if not np.isfinite(sizes).all():  # a number of hundreds of digits is no float
        return None
    predicted = _predicted_sizes(prompts, sizes)
    own = _errors(sizes, predicted, 0)
    width = float(np.median(own)) / np.log(2)
    best: PartialShift | None = None
    for rows in displacements() if width > 0 else ():
        other = _errors(sizes, predicted, rows)
        ratios = np.nan_to_num(np.clip((own - other) / width, -_MAX_RATIO, _MAX_RATIO))
        start, stop = best_part(ratios)
        wins, compared = int((ratios[start:stop] > 0).sum()), int((ratios[start:stop] != 0).sum())
        rest = np.delete(ratios, np.s_[start:stop])
        kept = int((rest < 0).sum())
        if (
            ratios[start:stop].sum() > np.log(len(prompts) / LEVEL)
            and is_significant(wins, compared, len(prompts), share=_MIN_PREDICTED_SHARE)
            and is_significant(kept, int((rest != 0).sum()), share=_MIN_PREDICTED_SHARE)
            and not _is_smooth((predicted - sizes)[start:stop])
            and (best is None or wins > best.shift.wins)
        ):
            best = PartialShift(Shift(rows, wins, compared), start, stop)
    return best


def _errors(
    sizes: NDArray[np.float64], predicted: NDArray[np.float64], rows: int
) -> NDArray[np.float64]:
    """Distance of prediction i from the size of answer i + rows; NaN without such a row."""
    errors = np.full(len(sizes), np.nan)
    first = slice(max(-rows, 0), len(sizes) - max(rows, 0))
    second = slice(max(rows, 0), len(sizes) - max(-rows, 0))
    errors[first] = np.abs(predicted[first] - sizes[second])
    return errors


def _predicted_sizes(prompts: Sequence[str], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sizes of answers by ridge regression on the prompts."""
    words = [set(words_of(text)) for text in prompts]
    usual = usual_words(words)
    table = np.array(
        [
            [1.0, *_sizes(text), *_first_sizes(text), *(float(word in each) for word in usual)]
            for text, each in zip(prompts, words, strict=True)
        ]
    )
    table = np.nan_to_num(table, posinf=0.0)  # such a number in a prompt counts as none
    penalty = _RIDGE * np.eye(table.shape[1])
    weights = np.linalg.solve(table.T @ table + penalty, table.T @ sizes)
    return np.asarray(table @ weights)


def usual_words(words: Sequence[set[str]]) -> list[str]:
    """The most frequent words of texts that neither nearly all nor hardly any of them have."""
    counts = Counter(word for each in words for word in each if word.isalpha())
    least, most = (share * len(words) for share in _USUAL)
    frequent = counts.most_common(_MAX_WORDS * 4)
    return [word for word, count in frequent if least <= count <= most][:_MAX_WORDS]


def _is_smooth(errors: NDArray[np.float64]) -> bool:
    """Whether the errors of consecutive rows are alike.

    Where answers grow from row to row, a prediction that is too low everywhere fits a row nearby
    better than its own. The errors of displaced answers in no order alternate.
    """
    if np.ptp(errors[:-1]) == 0 or np.ptp(errors[1:]) == 0:
        return True
    return float(np.corrcoef(errors[:-1], errors[1:])[0, 1]) > _SMOOTH


def _first_sizes(text: str) -> list[float]:
    """Logarithms of the first numbers of a text; 0 for those that it does not have."""
    numbers = [*numbers_of(text)[:_FIRST_NUMBERS], *[0.0] * _FIRST_NUMBERS][:_FIRST_NUMBERS]
    return [float(np.log1p(abs(number))) for number in numbers]


def best_part(scores: NDArray[np.float64]) -> tuple[int, int]:
    """Beginning and end of the part with the largest sum."""
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    lowest = np.minimum.accumulate(sums)
    stop = int(np.argmax(sums - lowest))
    return int(np.argmin(sums[: stop + 1])), stop


def _fits(
    prompts: Sequence[str], answers: Sequence[str], shifts: Sequence[int] | None = None
) -> tuple[NDArray[np.float64], dict[int, NDArray[np.float64]]]:
    """How well each prompt fits the answer of its own row, and those of the rows nearby."""
    prompt_words = [set(words_of(text)) for text in prompts]
    answer_words = [set(words_of(text)) for text in answers]
    counts: dict[str, int] = {}
    for words in prompt_words:
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    weights = {word: np.log(len(prompts) / count) for word, count in counts.items()}
    own = _shared(prompt_words, answer_words, weights, 0)
    chosen = displacements() if shifts is None else shifts
    return own, {rows: _shared(prompt_words, answer_words, weights, rows) for rows in chosen}


def displacements() -> list[int]:
    """The distances in rows that are tried."""
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


def is_significant(wins: int, compared: int, tests: int = 1, share: float = _MIN_SHARE) -> bool:
    """Whether so many won comparisons are more than chance, in one of several tests."""
    from scipy.stats import binomtest

    if compared < _MIN_ROWS or wins < share * compared:
        return False
    return float(binomtest(wins, compared, 0.5, alternative="greater").pvalue) * tests < LEVEL


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
    for rows in displacements():
        for feature in features.T:
            strength, p_value = _correlation(feature, sizes, rows)
            if (
                p_value < LEVEL
                and (best is None or strength > best[0])
                and _exceeds_far_rows(feature, sizes, rows, strength)
            ):
                compared = len(sizes) - abs(rows)
                best = strength, Shift(rows, compared, compared)
    return best[1] if best else None


def _exceeds_far_rows(
    feature: NDArray[np.float64], sizes: NDArray[np.float64], rows: int, strength: float
) -> bool:
    """Whether no distance further away has a correlation of this strength.

    If kinds of questions take turns, those with large numbers are a fixed distance away from those
    with large answers. The same correlation then returns with each turn.
    """
    near = rows + MAX_SHIFT + 1
    noise = np.sqrt(2 / max(len(sizes) - near - TURNS - 3, 1))  # of a difference of transforms
    bound = np.arctanh(min(strength, _NEARLY_ONE)) - _FAR_ERRORS * noise
    for far in range(near, near + TURNS):
        other, p_value = _correlation(feature, sizes, far)
        if p_value < _FAR_LEVEL and np.arctanh(min(other, _NEARLY_ONE)) > bound:
            return False
    return True


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
