"""Whole numbers that a program wrote with an exponent, such as 1.23457e+07."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PRINTED = re.compile(r"-?\d(?:\.(\d+))?e\+(\d{2})")
_ASKED = re.compile(
    r"scientific|exponent|significant|powers? of ten|\d[eE][+-]?\d|10\^|\be\+", re.IGNORECASE
)
_MIN_ROWS, _MIN_SHARE = 5, 0.01


def with_exponent(prompts: Sequence[str], answers: Sequence[str]) -> dict[int, str]:
    """Answers in the notation of a program, and the same numbers without an exponent.

    Prompts that ask for such a notation, or use it, do not count.
    """
    found = {}
    for at, answer in enumerate(answers):
        match = _PRINTED.fullmatch(answer.strip())
        if match and int(match[2]) >= len(match[1] or "") and not _ASKED.search(prompts[at]):
            found[at] = f"{float(answer):.0f}"
    return found if len(found) >= max(_MIN_ROWS, _MIN_SHARE * len(answers)) else {}
