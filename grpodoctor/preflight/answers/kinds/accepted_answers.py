"""Rows with several accepted answers, among which another row's answer may be right, too."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from grpodoctor.preflight.inputs.prompt_rows import PromptRow

_DEVIATIONS = 3.0
"""Standard deviations by which a share of rows may exceed its expectation by chance."""

_MOST_LABELS, _MIN_OF_LABEL = 10, 3
"""Labels of a closed set, and rows of each."""
_ANY = re.compile(
    r"\bany (?:such|one|of|single|valid|correct|right|legal|winning|possible)\b|"
    r"\bone (?:of them|such \w+|\w+) is enough\b|\b(?:only|just) one of\b",
    re.IGNORECASE,
)


def asks_for_any(row: PromptRow) -> bool:
    """Whether a prompt says that one of several answers is enough."""
    return any(map(_ANY.search, row.texts()))


def accepted_by_chance(rows: Sequence[PromptRow]) -> float:
    """Share of rows in which another row's answer may be right.

    0 unless most prompts ask for any of several answers, and most rows list them.
    """
    if sum(map(asks_for_any, rows)) <= len(rows) / 2:
        return 0.0
    answers = [row.answer or "" for row in rows]
    accepted = [_accepted(row) for row in rows]
    if sum(map(bool, accepted)) <= len(rows) / 2:
        return 0.0
    shares = [
        sum(other in own for other in answers if other != answer) / max(len(answers) - 1, 1)
        for answer, own in zip(answers, accepted, strict=True)
    ]
    return above_chance(max(fmean(shares), 1 / len(rows)), len(rows))


def rate_of_one_label(rows: Sequence[PromptRow]) -> float:
    """Share of rows in which a fixed label may be right; 0 if the answers are no closed set.

    A function that reads the last of several labels reads the same one in every row.
    """
    counts = Counter((row.answer or "").strip().casefold() for row in rows)
    if len(counts) > _MOST_LABELS or len(rows) < _MIN_OF_LABEL * len(counts):
        return 0.0
    return above_chance(max(counts.values()) / len(rows), len(rows))


def above_chance(rate: float, rows: int) -> float:
    """The largest share of rows that an event of some rate has by chance."""
    return rate + _DEVIATIONS * math.sqrt(rate * (1 - rate) / rows)


def _accepted(row: PromptRow) -> list[str]:
    """The values of a list whose first one is the answer."""
    lists = [value for value in row.columns.values() if isinstance(value, list) and value]
    return [str(each) for value in lists if str(value[0]) == row.answer for each in value]
