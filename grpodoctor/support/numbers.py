"""Numbers in text: reading them from values of unknown type, and wording counts and time spans."""

from __future__ import annotations

import math


def parse_number(value: object) -> float | None:
    """A number, or the number that a text spells as loggers print it; None for anything else.

    Booleans count as 0 and 1, as loggers mean them. `np.float64(0.3)` and a trailing `%` are left
    to the log formats that use them.
    """
    if isinstance(value, bool | int | float):
        return float(value) if abs(value) < 1e308 or isinstance(value, float) else None
    if not isinstance(value, str) or not 0 < len(value) <= 40:
        return None
    try:
        return float(value)
    except ValueError:
        return None


def count_of(count: int, noun: str) -> str:
    """A count with its noun, such as `1 rule` or `2 rules`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def part_of(count: int, total: int, nouns: str, predicate: str) -> str:
    """A part of a total with its predicate: `1 of 8 prompts has`, `2 of 8 prompts have`.

    Args:
        count: the size of the part.
        total: the size of the total.
        nouns: what is counted, in the plural.
        predicate: what is said of the part; its first word is a verb in the plural.
    """
    verb, *rest = predicate.split(" ")
    return " ".join(
        (f"{count:,} of {total:,} {nouns}", _singular(verb) if count == 1 else verb, *rest)
    )


_SINGULAR_VERBS = {"have": "has", "are": "is", "were": "was", "do": "does", "carry": "carries"}
"""Verbs whose singular is not the plural with an s or es."""


def _singular(verb: str) -> str:
    ending = "es" if verb.endswith(("s", "x", "sh", "ch")) else "s"
    return _SINGULAR_VERBS.get(verb, f"{verb}{ending}")


def duration(seconds: float) -> str:
    """A time span in the largest suitable unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def rounded_down(value: float, digits: int) -> float:
    """A positive number with few significant digits that is not larger."""
    size = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return float(f"{math.floor(value / size) * size:.{digits}g}")
