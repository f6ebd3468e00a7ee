"""Questions for a person or a place whose answer is a number."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpodoctor.preflight.texts.normal_form import number_of

_QUESTION = re.compile(r"(?:^|[\n.:!] ?)((?:Who|Whose|Whom|Where)\b[^?\n]{3,200}\?)")
_ASKS_FOR_NUMBER = re.compile(
    r"\b(?:options?|choose|choices?|select|pick|numbers?|numbered|index|indices|ids?|rank|cite|"
    r"citations?|sources?|digits?)\b|\[N\]",
    re.IGNORECASE,
)
"""Prompts that want the number of an option or of a passage."""
_TIME = re.compile(r"\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_MIN_ROWS = 10
_MOST = 0.9
"""Share of such questions whose answer must be a number."""
_MIN_ASKING = 0.1
"""Share of such questions among all prompts. Problems of mathematics ask seldom where two lines
meet, or who is older and by how much; all of their answers are numbers."""


def numbers_for_names(prompts: Sequence[str], answers: Sequence[str]) -> list[int]:
    """Rows that ask who or where, and whose answer is a number; empty unless nearly all are.

    The numbers are positions, such as those of passages in the prompt, or ids of another table.
    """
    asking = [at for at, prompt in enumerate(prompts) if _asks_for_name(prompt, answers[at])]
    if len(asking) < _MIN_ASKING * len(prompts):
        return []
    numbers = [
        at for at in asking if number_of(answers[at]) is not None or _TIME.match(answers[at])
    ]
    return numbers if len(numbers) >= max(_MIN_ROWS, _MOST * len(asking)) else []


def _asks_for_name(prompt: str, answer: str) -> bool:
    questions = _QUESTION.findall(prompt)
    is_named = bool(questions) and answer.strip() in re.findall(r"\d+", questions[-1])
    return bool(questions) and not is_named and not _ASKS_FOR_NUMBER.search(prompt)
