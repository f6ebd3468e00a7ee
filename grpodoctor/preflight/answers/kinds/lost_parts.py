"""Answers that have lost a part: the number before a unit, or digits to the noise of a float."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Sequence

_NUMBER = re.compile(r"[-+]?\d(?:[\d.,]*\d)?(?:[eE][-+]?\d+)?")
_DECIMAL = re.compile(r"[-+]?\d+\.\d{9,}")
_UNIT = re.compile(
    r"(?!(?:pi|inf|infinity|sqrt|ln|log)\b)[^\W\d_]{2,}(?: [^\W\d_]+)?|[%\u20ac$\u00a3]"
)
"""Words and signs that follow a number. Formulas are answers without a number: x, 2x and pi."""
_MOST_NUMBERED = 0.6
"""Share of the answers with a number, which shows that the number belongs to an answer."""
_MIN_FOUND = 5
_MIN_SHARE = 0.01
_EXACT_DIGITS = 6
"""Significant digits that a float of 32 bits keeps; its noise begins behind them."""


def without_number(answers: Sequence[str]) -> list[int]:
    """The answers that are what is left of the others without their number, such as 'kg'.

    Returns:
        Indices; empty if fewer than five answers or 1 % are concerned.
    """
    rests = [_NUMBER.sub("", answer).strip() for answer in answers]
    numbered = [bool(_NUMBER.search(answer)) for answer in answers]
    if sum(numbered) < _MOST_NUMBERED * len(answers):
        return []
    known = Counter(
        rest for rest, has in zip(rests, numbered, strict=True) if has and _UNIT.fullmatch(rest)
    )
    found = [
        at
        for at, (rest, has) in enumerate(zip(rests, numbered, strict=True))
        if not has and known[rest] >= _MIN_FOUND
    ]
    return found if len(found) >= max(_MIN_FOUND, _MIN_SHARE * len(answers)) else []


def with_float_noise(answers: Sequence[str]) -> list[int]:
    """The numbers that are a short decimal, rounded to 32 bits and written with 64.

    12.4 becomes 12.399999618530273 in this way.
    """
    found = [at for at, answer in enumerate(answers) if _is_noisy(answer.strip())]
    return found if len(found) >= max(_MIN_FOUND, _MIN_SHARE * len(answers)) else []


def _is_noisy(text: str) -> bool:
    if not _DECIMAL.fullmatch(text):
        return False
    value = float(text)
    short = float(f"{value:.{_EXACT_DIGITS}g}")
    try:
        (rounded,) = struct.unpack("f", struct.pack("f", short))
    except OverflowError:
        return False
    return short != value and abs(rounded - value) <= 1e-12 * abs(value)
