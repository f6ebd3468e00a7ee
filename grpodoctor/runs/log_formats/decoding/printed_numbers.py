"""Numbers in console text, and the pairs of a line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from grpodoctor.support.numbers import parse_number

NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity)"
WRAPPED = rf"(?:np\.\w+\(|tensor\()?({NUMBER})(?:, device='[\w:]+')?\)?"
"""A number, also as numpy or torch prints it."""
_WRAPPED_WHOLE = re.compile(WRAPPED)


class ParsedLine(NamedTuple):
    """The pairs of a line, and its step if it has one."""

    pairs: Mapping[str, float]
    step: int | None = None
    counter: str = ""
    """The word before the step, such as `rollout`; empty for the log's main counter."""


def parse_wrapped(text: str) -> float | None:
    """Parse a number, also as numpy or torch prints it."""
    plain = parse_number(text)
    if plain is not None:
        return plain
    match = _WRAPPED_WHOLE.fullmatch(text.strip()) if len(text) < 80 else None
    return to_number(match[1]) if match else None


def to_number(text: str) -> float:
    """The value of a text that matches `NUMBER`; commas separate thousands."""
    return float(text.replace(",", ""))
