"""Values that stand for no answer: empty tags and boxes, signs alone, a word in capitals."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from grpodoctor.preflight.texts.normal_form import words_of

_WRAPPING = re.compile(r"\\(?:boxed|text|mathrm)|</?[A-Za-z][^<>]{0,30}>")
_MIN_ROWS, _MIN_SHARE, _MOST_SHARE = 5, 0.01, 0.3
_EXTRACTED = 0.95
"""Share of the other answers that occur in their prompt, which shows that all should."""
_NO_WORD = re.compile(r"0+|-1|-?9{3,}|[^a-z0-9]{1,20}")
"""Numbers with which programs fill a column, signs, and words in capitals."""


def blank_forms(prompts: Sequence[str], answers: Sequence[str]) -> list[int]:
    """The answers that stand for no answer.

    Signs without a letter or digit count if they have one form, and the other answers have letters.
    Zero, -1 or a word in capitals counts if no prompt of its rows contains it, and nearly all other
    answers occur in theirs.

    Args:
        prompts: all messages of each prompt.
        answers: the answers.
    """
    least = max(_MIN_ROWS, _MIN_SHARE * len(answers))
    empty = [
        at
        for at, answer in enumerate(answers)
        if answer.strip() and not any(map(str.isalnum, _WRAPPING.sub("", answer)))
    ]
    if len({answers[at].strip() for at in empty}) == 1 and (
        least <= len(empty) <= _MOST_SHARE * len(answers)
    ):
        return empty
    return _foreign(prompts, answers, least)


def _foreign(prompts: Sequence[str], answers: Sequence[str], least: float) -> list[int]:
    texts = [f" {' '.join(words_of(prompt))} " for prompt in prompts]
    within = [
        f" {' '.join(words_of(answer))} " in text
        for answer, text in zip(answers, texts, strict=True)
    ]
    counts = Counter(
        answer.strip() for answer, is_in in zip(answers, within, strict=True) if not is_in
    )
    for value, count in counts.most_common(1):
        rows = [at for at, answer in enumerate(answers) if answer.strip() == value]
        others = len(answers) - len(rows)
        fits = sum(within) - sum(within[at] for at in rows)
        is_odd = _NO_WORD.fullmatch(value) and len(rows) == count
        if is_odd and least <= count <= _MOST_SHARE * len(answers) and fits >= _EXTRACTED * others:
            return rows
    return []
