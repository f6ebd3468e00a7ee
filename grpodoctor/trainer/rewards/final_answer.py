r"""The final answer of a response: what it is, and whether it agrees with another as plain text.

Models box their answer, or write it behind `#` as the solutions of GSM8K do, or say nothing else.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

_BOX = "\\boxed{"
_TOKENS = re.compile(r"\\boxed\{|\\.|[{}]", re.DOTALL)
"""Braces; a brace behind a backslash is a character, not a bracket."""


class Final(NamedTuple):
    """A final answer and how it was found."""

    text: str
    marked: bool
    """Whether the response said which part is its answer; otherwise it is the whole response."""


def find_final(text: str) -> Final:
    r"""The last `\boxed{...}` with balanced braces, else what follows the last `#`, else all."""
    boxed = _last_boxed(text)
    if boxed is not None:
        return Final(boxed.strip(), marked=True)
    _, mark, rest = text.rpartition("#")
    return Final(rest.strip(), marked=bool(mark))


def final_answer(text: str) -> str:
    """The final answer alone."""
    return find_final(text).text


def has_box(text: str) -> bool:
    """Whether there is a box that is closed."""
    return _last_boxed(text) is not None


def _last_boxed(text: str) -> str | None:
    """What the last box that is closed holds; one pass, for a hostile text may open thousands."""
    open_braces: list[int | None] = []
    found: tuple[int, int] | None = None
    for token in _TOKENS.finditer(text):
        if token[0] == _BOX:
            open_braces.append(token.end())
        elif token[0] == "{":
            open_braces.append(None)
        elif token[0] == "}" and open_braces:
            start = open_braces.pop()
            if start is not None and (found is None or start > found[0]):
                found = start, token.start()
    return None if found is None else text[slice(*found)]


def agree(left: str, right: str) -> bool:
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
