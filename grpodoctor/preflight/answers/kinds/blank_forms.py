"""Values that stand for no answer: empty tags and boxes, signs alone, a word in capitals."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from grpodoctor.preflight.texts.normal_form import words_of

_WRAPPING = re.compile(r"\\(?:boxed|text|mathrm)|</?[A-Za-z][^<>]{0,30}>")
_MIN_ROWS, _MIN_SHARE, _MOST_SHARE = 5, 0.01, 0.3
_EXTRACTED = 0.95
"""Share of the other answers that occur in their prompt, which shows that all should."""
_NO_WORD = re.compile(
    r"0+|-1|-?9{3,}|[!-/:-@\[-`{-~\u2010-\u2015\u2026]{1,20}|"
    r"(?!(?:YES|NO|TRUE|FALSE)\b)[A-Z][A-Z_ /.-]{0,19}"
)
"""Numbers with which programs fill a column, signs, and words in capitals, but no verdicts."""
_EMPTY_DATA = re.compile(r"[\[({]\s*[\])}]")
"""A list or an object without content, which is a right answer among others of its kind."""


def blank_forms(prompts: Sequence[str], answers: Sequence[str]) -> list[int]:
    """The answers that stand for no answer.

    Signs without a letter or digit count if they have one form, and the other answers have letters.
    Signs with a meaning of their own (infinity, the empty set, emoji) do not, nor does an empty
    list among lists.
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
        if answer.strip() and not any(map(_has_meaning, _WRAPPING.sub("", answer)))
    ]
    if empty and _EMPTY_DATA.fullmatch(sign := answers[empty[0]].strip()):
        kinds = sum(answer.lstrip()[:1] == sign[0] for answer in answers)
        empty = [] if kinds > len(empty) else empty
    if len({answers[at].strip() for at in empty}) == 1 and (
        least <= len(empty) <= _MOST_SHARE * len(answers)
    ):
        return empty
    return _foreign(prompts, answers, least)


def _has_meaning(sign: str) -> bool:
    """Whether a sign may be an answer: a letter, a digit, or a symbol that no keyboard has."""
    is_symbol = not sign.isascii() and unicodedata.category(sign) in {"Sm", "So"}
    return sign.isalnum() or is_symbol


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
