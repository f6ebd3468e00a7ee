"""A block of answers that occurs a second time, behind other prompts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grpodoctor.preflight.texts.languages import language_of
from grpodoctor.preflight.texts.normal_form import numbers_of, words_of
from grpodoctor.preflight.texts.related_prompts import are_related

_MIN_ROWS = 20
_MOST_LAGS = 50
_MIN_BITS = 64.0
"""Information of a block. Two blocks of 20,000 rows agree by chance with 2 ** (29 - 64)."""
_MOST_ALIKE = 0.2
"""Share of the rows of a block whose prompts may say the same, as in another language."""
_ALIKE = 0.6


@dataclass(frozen=True, slots=True)
class RepeatedBlock:
    """Rows whose answers are those of earlier rows."""

    start: int
    stop: int
    lag: int
    """How many rows earlier the same answers are."""


def repeated_block(prompts: Sequence[str], answers: Sequence[str]) -> RepeatedBlock | None:
    """The longest block of answers that repeats an earlier one behind other prompts.

    Paraphrases, translations and repeated prompts share numbers or words with the earlier rows, and
    have the same answers rightly.
    """
    best = max(_blocks(answers), key=lambda block: block.stop - block.start, default=None)
    if best is None:
        return None
    pairs = [(prompts[at], prompts[at - best.lag]) for at in range(best.start, best.stop)]
    alike = sum(_say_the_same(one, other) for one, other in pairs)
    return None if alike > _MOST_ALIKE * len(pairs) or are_related(pairs) else best


def _blocks(answers: Sequence[str]) -> Iterator[RepeatedBlock]:
    """The repeated blocks that are no accident.

    An answer that follows from one a shorter distance before carries no information, nor do further
    rounds of the same answers: labels that take turns are no copied block, however many they are.
    """
    counts = Counter(answers)
    bits = [-math.log2(counts[answer] / len(answers)) for answer in answers]
    for lag in sorted(_lags(answers)):
        runs = [*_runs(answers, lag)]
        for start, stop in runs:
            if stop - start > lag == len(counts):
                continue  # every answer in turn
            first_round = bits[start - lag : min(start, stop - lag)]
            if len(set(answers[start:stop])) > 2 and sum(first_round) >= _MIN_BITS:
                yield RepeatedBlock(start, stop, lag)
        for start, stop in runs:
            bits[start:stop] = [0.0] * (stop - start)


def _lags(answers: Sequence[str]) -> list[int]:
    """The distances at which most runs of `_MIN_ROWS` answers occur again."""
    seen: dict[tuple[str, ...], int] = {}
    lags: Counter[int] = Counter()
    for at in range(len(answers) - _MIN_ROWS + 1):
        run = tuple(answers[at : at + _MIN_ROWS])
        if run in seen:
            lags[at - seen[run]] += 1
        seen[run] = at
    return [lag for lag, _ in lags.most_common(_MOST_LAGS)]


def _runs(answers: Sequence[str], lag: int) -> Iterator[tuple[int, int]]:
    """Where at least `_MIN_ROWS` successive answers equal those `lag` rows before."""
    start = lag
    for at in range(lag, len(answers) + 1):
        if at < len(answers) and answers[at] == answers[at - lag]:
            continue
        if at - start >= _MIN_ROWS:
            yield start, at
        start = at + 1


def _say_the_same(one: str, other: str) -> bool:
    """Whether two prompts may be one problem in other words or in another language."""
    numbers = sorted(numbers_of(one)), sorted(numbers_of(other))
    if numbers[0] or numbers[1]:
        return numbers[0] == numbers[1]
    if language_of(one) != language_of(other):
        return True
    words = set(words_of(one)), set(words_of(other))
    return len(words[0] & words[1]) >= _ALIKE * max(len(words[0] | words[1]), 1)
