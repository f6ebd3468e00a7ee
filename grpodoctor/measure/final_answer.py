r"""Finding the final answer of a response, and comparing two answers as plain text.

Models put the answer in a box, write it after `#` as the solutions of GSM8K do, or write nothing
else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_BOX = "\\boxed{"
_TOKENS = re.compile(r"\\boxed\{|\\.|[{}]", re.DOTALL)
"""Braces; a brace after a backslash is a character, not a bracket."""


class FinalAnswer(NamedTuple):
    """A final answer and how it was found."""

    text: str
    marked: bool
    """Whether the response marks its answer; otherwise the answer is the whole response."""


def find_final(text: str) -> FinalAnswer:
    r"""The last `\boxed{...}` with balanced braces, else the text after the last `#`, else all."""
    boxed = _last_boxed(text)
    if boxed is not None:
        return FinalAnswer(boxed.strip(), marked=True)
    _, mark, rest = text.rpartition("#")
    return FinalAnswer(rest.strip(), marked=bool(mark))


def final_answer(text: str) -> str:
    """The text of the final answer."""
    return find_final(text).text


def has_box(text: str) -> bool:
    """Whether the text has a box that is closed."""
    return _last_boxed(text) is not None


def boxes(text: str) -> list[str]:
    """Contents of the closed boxes, by their start; a box in a box counts as well."""
    return [text[part].strip() for part in sorted(_boxes(text), key=lambda part: part.start)]


def _last_boxed(text: str) -> str | None:
    """Content of the last closed box."""
    last = max(_boxes(text), key=lambda part: part.start, default=None)
    return None if last is None else text[last]


def _boxes(text: str) -> Iterator[slice]:
    """Places of the closed boxes, in one pass: a hostile text may open thousands of boxes."""
    open_braces: list[int | None] = []
    for token in _TOKENS.finditer(text):
        if token[0] == _BOX:
            open_braces.append(token.end())
        elif token[0] == "{":
            open_braces.append(None)
        elif token[0] == "}" and open_braces:
            start = open_braces.pop()
            if start is not None:
                yield slice(start, token.start())


def same_answer(left: str, right: str) -> bool:
    """Whether two answers are the same text or the same number."""
    if left == right:
        return True
    numbers = [_number(left), _number(right)]
    return None not in numbers and numbers[0] == numbers[1]


def _number(text: str) -> float | None:
    try:
        number = float(text.replace(",", "").removeprefix("$"))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
