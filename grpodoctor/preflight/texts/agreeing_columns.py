"""Columns of a row that say the same: the letter of an option, its text, its number.

Nothing has to be known about the columns. If two of them name the same option in nearly all rows,
the other rows are errors; if they name options at one distance in nearly all rows, the whole column
is displaced. Columns that agree by chance, such as distractors, do neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

MIN_ROWS = 20
"""Rows in which both columns must name an option."""
_NEARLY_ALL = 0.9
"""Share of the rows that must agree or have the same distance; chance gives a quarter."""
_MIN_OPTIONS = 3
"""Options from which one distance shows a displacement: the right and the wrong one of two always
differ."""
_MIN_WRONG = 3
"""Rows that must disagree among others that agree."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two columns that name different options."""

    columns: tuple[str, str]
    rows: tuple[int, ...]
    """Rows that disagree."""
    compared: int
    distance: int = 0
    """Options between the two columns in nearly all rows; 0 if most rows agree."""


def disagreeing_columns(
    options: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, Any]]
) -> Disagreement | None:
    """The two columns with the most rows that name different options.

    Args:
        options: the texts of each row's options by letter; empty for a row without options.
        rows: the columns of each row, without the prompt.
    """
    named: dict[str, dict[int, int]] = {}
    for at, (texts, columns) in enumerate(zip(options, rows, strict=True)):
        for name, value in columns.items() if len(texts) > 1 else ():
            for kind, place in _places(texts, value):
                named.setdefault(f"{name}\n{kind}", {})[at] = place
    found = (
        _disagreement((one, other), named[one], named[other], options)
        for one, other in combinations(named, 2)
        if one.partition("\n")[0] != other.partition("\n")[0]
    )
    return max(filter(None, found), key=lambda each: len(each.rows), default=None)


def _places(options: Mapping[str, str], value: object) -> list[tuple[str, int]]:
    """Which option a value names, as a letter or a text."""
    if not isinstance(value, str):
        return []
    text = value.strip()
    letters = list(options)
    places = [("letter", letters.index(text.upper()))] if text.upper() in letters else []
    folded = [each.strip().casefold() for each in options.values()]
    if folded.count(text.casefold()) == 1 and text.upper() not in letters:
        places.append(("text", folded.index(text.casefold())))
    return places


def _disagreement(
    names: tuple[str, str],
    one: Mapping[int, int],
    other: Mapping[int, int],
    options: Sequence[Mapping[str, str]],
) -> Disagreement | None:
    both = [at for at in one if at in other]
    if len(both) < MIN_ROWS:
        return None
    columns = names[0].partition("\n")[0], names[1].partition("\n")[0]
    distances = Counter((one[at] - other[at]) % len(options[at]) for at in both)
    wrong = tuple(at for at in both if one[at] != other[at])
    distance, count = distances.most_common(1)[0]
    is_pair = distance and min(len(options[at]) for at in both) < _MIN_OPTIONS
    if is_pair or count < _NEARLY_ALL * len(both) or len(wrong) < _MIN_WRONG:
        return None
    return Disagreement(columns, wrong, len(both), distance)
