"""Rows in which two columns have changed places."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Any

from grpodoctor.preflight.texts.normal_form import number_of

_MOST_COLUMNS = 8
_MIN_ROWS = 20
_MIN_EXCHANGED = 3
_MAX_SHARE = 0.4
"""Share of exchanged rows above which no majority tells which form belongs to which column."""
_MAX_UNCLEAR = 0.1
"""Share of rows that fit neither order: with more, the columns have no form of their own."""
_SHORT, _LONG = 3, 8
"""Words of a short and of a long text; a text between them has no clear form."""
_LETTER = re.compile(r"\(?[A-Ja-j]\)?\.?")
_SCORE = re.compile(r"score|rating|reward|grade|quality", re.IGNORECASE)
"""Names of columns that say how good a response is; its length or its tokens do not."""
_LEAST_MARGIN = 0.8
"""Median difference of the scores in exchanged rows, as a part of that in the others. If a judge
other than the annotator scored them, those that disagree differ less: by less than half as much if
they are a quarter of normally distributed differences."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Two columns and the rows in which they are exchanged."""

    columns: tuple[str, str]
    rows: tuple[int, ...]
    why: str
    """By what the exchange is known."""


def exchanged_columns(rows: Sequence[Mapping[str, Any]]) -> Exchanged | None:
    """The pair of columns with the most exchanged rows; None if there is none.

    The columns of texts must have different forms in nearly all rows: a number, a letter, a
    question, a short or a long text. Scores of chosen and rejected responses are compared as well.
    """
    if len(rows) < _MIN_ROWS:
        return None
    names = [name for name, value in rows[0].items() if isinstance(value, str | int | float)]
    forms = {name: [_form(row.get(name)) for row in rows] for name in names[:_MOST_COLUMNS]}
    pairs = [_of_forms(pair, forms) for pair in combinations(forms, 2)]
    pairs.append(_of_scores(rows, names))
    found = [each for each in pairs if each is not None]
    return max(found, key=lambda each: len(each.rows), default=None)


def _form(value: object) -> str:
    """The form of a value; empty if it is not clear."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    text = str(value).strip()
    if number_of(text) is not None:
        return "number"
    if _LETTER.fullmatch(text):
        return "letter"
    if text.endswith("?"):
        return "question"
    words = len(text.split())
    return "short text" if 0 < words <= _SHORT else "long text" if words >= _LONG else ""


def _of_forms(pair: tuple[str, str], forms: Mapping[str, Sequence[str]]) -> Exchanged | None:
    both = list(zip(forms[pair[0]], forms[pair[1]], strict=True))
    usual, count = Counter(both).most_common(1)[0]
    if "" in usual or usual[0] == usual[1]:
        return None
    rows = tuple(at for at, each in enumerate(both) if each == usual[::-1])
    unclear = len(both) - count - len(rows)
    if not _is_part(len(rows), len(both)) or unclear > _MAX_UNCLEAR * len(both):
        return None
    one_sided = sum((one == usual[1]) != (other == usual[0]) for one, other in both)
    if one_sided > len(rows):
        return None  # each column has the other's form now and then, so some rows have both
    return Exchanged(pair, rows, f"a {usual[1]} in place of a {usual[0]}, and the other way round")


def _of_scores(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Exchanged | None:
    """Scores of chosen responses that are below those of the rejected ones."""
    for chosen in names:
        rejected = chosen.replace("chosen", "rejected")
        if rejected == chosen or rejected not in names or not _SCORE.search(chosen):
            continue
        scores = [(row.get(chosen), row.get(rejected)) for row in rows]
        if not all(isinstance(each, int | float) for pair in scores for each in pair):
            continue
        margins = [one - other for one, other in scores]  # type: ignore[operator]
        lower = tuple(at for at, margin in enumerate(margins) if margin < 0)
        if len(lower) >= _MIN_EXCHANGED and _are_as_large(margins):
            return Exchanged((chosen, rejected), lower, "the chosen response has the lower score")
    return None


def _are_as_large(margins: Sequence[float]) -> bool:
    """Whether negative margins are as large as positive ones."""
    above = [margin for margin in margins if margin > 0]
    below = [-margin for margin in margins if margin < 0]
    return not above or median(below) >= _LEAST_MARGIN * median(above)


def _is_part(exchanged: int, rows: int) -> bool:
    return exchanged >= _MIN_EXCHANGED and exchanged <= _MAX_SHARE * rows
