"""Numbers with a decimal comma where their prompts write a decimal point."""

from __future__ import annotations

import re
from collections.abc import Sequence

_COMMA = re.compile(
    r"[^\w\s]{0,1}\s?(-?\d{1,3}(?:[.\u00a0 ]\d{3})+,\d{1,2}|-?\d+,\d{1,2})\s?\S{0,3}"
)
"""A number such as 1.234,56 or 12,5, alone or with a currency."""
_COMMA_IN_TEXT = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})*,\d{1,2}(?![\d,])")
_POINT_IN_TEXT = re.compile(
    r"(?<![\d.,])\d{1,3}(?:,\d{3})*\.\d{1,2}(?!\d|[.,]\d)|(?<![\d.,])\d+\.\d{1,2}(?!\d|[.,]\d)"
)
_MIN_SHARE = 0.8
"""Share of the filled rows: amounts below one, and prompts without the number, are exceptions."""
_MIN_ROWS = 20


def with_other_decimals(prompts: Sequence[str], values: Sequence[str]) -> list[int]:
    """Rows whose number has a decimal comma, and a decimal point in the prompt; empty if few.

    A prompt with a decimal comma of its own, such as an example of the form, asks for one.

    Args:
        prompts: the texts of the prompts.
        values: one value of each row; empty if it has none.
    """
    filled = [at for at, value in enumerate(values) if value.strip()]
    if len(filled) < _MIN_ROWS:
        return []
    found = [at for at in filled if _differs(prompts[at], values[at])]
    return found if len(found) >= _MIN_SHARE * len(filled) else []


def _differs(prompt: str, value: str) -> bool:
    match = _COMMA.fullmatch(value.strip())
    if match is None or _COMMA_IN_TEXT.search(prompt):
        return False
    number = float(re.sub(r"[.\u00a0 ]", "", match[1]).replace(",", "."))
    written = (float(text.replace(",", "")) for text in _POINT_IN_TEXT.findall(prompt))
    return abs(number) in {abs(each) for each in written}
