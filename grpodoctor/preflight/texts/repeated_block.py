"""A block of answers that occurs a second time, behind other prompts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from grpodoctor.preflight.texts.languages import language_of
from grpodoctor.preflight.texts.normal_form import numbers_of, words_of
from grpodoctor.preflight.texts.related_prompts import are_related

_MIN_ROWS = 20
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
    have the same answers rightly. So have classes that take turns.
    """
    counts = Counter(answers)
    bits = [-math.log2(counts[answer] / len(answers)) for answer in answers]
    best = max(
        (block for lag in range(1, len(answers)) if (block := _longest(answers, bits, lag))),
        key=lambda block: block.stop - block.start,
        default=None,
    )
    if best is None or _take_turns(answers, best):
        return None
    pairs = [(prompts[at], prompts[at - best.lag]) for at in range(best.start, best.stop)]
    alike = sum(_say_the_same(one, other) for one, other in pairs)
    return None if alike > _MOST_ALIKE * len(pairs) or are_related(pairs) else best


def _take_turns(answers: Sequence[str], block: RepeatedBlock) -> bool:
    """Whether a block is a short sequence of answers several times, such as A, B, C, A, B, C."""
    size = block.stop - block.start
    own = answers[block.start : block.stop]
    period = next((at for at in range(1, size // 2 + 1) if own[at:] == own[:-at]), size)
    return period < _MIN_ROWS or (period < size and period == len(set(answers)))


def _longest(answers: Sequence[str], bits: Sequence[float], lag: int) -> RepeatedBlock | None:
    """The longest block that equals the one `lag` rows before, if it is no accident."""
    best: RepeatedBlock | None = None
    start = lag
    for at in range(lag, len(answers) + 1):
        if at < len(answers) and answers[at] == answers[at - lag]:
            continue
        is_long = at - start >= max(_MIN_ROWS, best.stop - best.start if best else 0)
        if is_long and len(set(answers[start:at])) > 2 and sum(bits[start:at]) >= _MIN_BITS:
            best = RepeatedBlock(start, at, lag)
        start = at + 1
    return best


def _say_the_same(one: str, other: str) -> bool:
    """Whether two prompts may be one problem in other words or in another language."""
    numbers = sorted(numbers_of(one)), sorted(numbers_of(other))
    if numbers[0] or numbers[1]:
        return numbers[0] == numbers[1]
    if language_of(one) != language_of(other):
        return True
    words = set(words_of(one)), set(words_of(other))
    return len(words[0] & words[1]) >= _ALIKE * max(len(words[0] | words[1]), 1)
