"""From lists of parsed JSON to columns; whatever stands there, a column comes out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, cast

import numpy as np

from grpodoctor.frameworks.rollout_formats.base import Column
from grpodoctor.measure.ragged import Ragged
from grpodoctor.support.numbers import parse_number
from grpodoctor.support.safe_text import clean_text

Row = Mapping[str, Any]

LARGEST_STEP = 2**53
MOST_COMPONENTS = 64
"""Numbers beside a response that are taken for reward components."""
LONGEST_NAME = 80


def floats(values: Sequence[object]) -> Column:
    """Numbers as doubles: NaN where there is none, an infinity where it is not finite."""
    kinds = set(map(type, values))
    if kinds <= {float, int, bool}:
        try:
            column = np.array(values, np.float64)
        except OverflowError:
            column = np.array([_float(each) for each in values])
    else:
        column = np.array([_float(each) for each in values], np.float64)
    if kinds - {bool, int}:
        is_nan = np.isnan(column)
        if is_nan.any():
            told = np.array([parse_number(each) is not None for each in values])
            column[is_nan & told] = np.inf
    return column


def _float(value: object) -> float:
    try:
        found = parse_number(value)
    except OverflowError:
        return math.inf
    return math.nan if found is None else found


def pick(rows: Sequence[Row], key: str) -> list[object]:
    """One key of every row."""
    return [row.get(key) for row in rows]


def known(column: Column) -> Column | None:
    """The column, or None if nothing in it is known."""
    return None if np.isnan(column).all() else column


def optional(rows: Sequence[Row], key: str) -> Column | None:
    """The numbers under a key; None where no row has one."""
    values = pick(rows, key)
    return None if all(each is None for each in values) else known(floats(values))


def texts(rows: Sequence[Row], key: str) -> list[str]:
    """The texts under a key; an empty one where there is none."""
    values = pick(rows, key)
    if set(map(type, values)) == {str}:
        return cast("list[str]", values)
    return [each if type(each) is str else text_of(each) for each in values]


def text_of(value: object) -> str:
    """A text, or what a chat or a list of parts says."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return text_of(value.get("content"))
    if isinstance(value, list):
        return "\n".join(text_of(each) for each in value[:1000] if isinstance(each, str | dict))
    return ""


def clean(value: str) -> str:
    """Text without lone surrogates."""
    return value if value.isascii() else clean_text(value)


def steps(rows: Sequence[Row], key: str, fallback: int | None) -> np.ndarray[Any, Any]:
    """The step of every row: what it says, else what the file's name says, else 0."""
    otherwise = 0 if fallback is None else fallback
    said = pick(rows, key)
    if set(map(type, said)) == {int}:
        whole = cast("list[int]", said)
        if min(whole) >= 0 and max(whole) < LARGEST_STEP:
            return np.array(whole, np.int64)
    return np.array([step_of(each, otherwise) for each in said], np.int64)


def step_of(value: object, otherwise: int) -> int:
    """A step number, also as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        found: float | None = value if abs(value) < LARGEST_STEP else None
    else:
        found = parse_number(value)
    if found is None or not 0 <= found < LARGEST_STEP:
        return otherwise
    return int(found)


def ragged(lists: Sequence[object], kind: type[np.generic] = np.float64) -> Ragged:
    """Lists of numbers; what is no such list counts as an empty one."""
    cleaned = [each if isinstance(each, list) else [] for each in lists]
    lengths = np.array([len(each) for each in cleaned], np.int64)
    total = int(lengths.sum())
    try:
        flat = np.fromiter(chain.from_iterable(cleaned), np.float64, total)
    except (TypeError, ValueError, OverflowError):
        flat = np.array([_float(each) for row in cleaned for each in row], np.float64)
    if kind is np.int64:
        with np.errstate(invalid="ignore"):
            flat = np.nan_to_num(flat, nan=-1, posinf=-1, neginf=-1).astype(np.int64)
    return Ragged.of_lengths(flat, lengths)


def flags(column: Column) -> Column:
    """What is 0 or 1, the rest not known."""
    return np.where((column == 0) | (column == 1), column, np.nan)


def has_any(column: Ragged) -> bool:
    """Whether any list has an entry."""
    return column.values_N.size > 0


def numbers_beside(rows: Sequence[Row], known_keys: frozenset[str]) -> dict[str, Column]:
    """Columns of the numbers that stand beside a response and are none of the framework's own."""
    layouts = set(map(tuple, rows))
    beside = {key for layout in layouts for key in layout if key not in known_keys}
    chosen: list[str] = []
    for name in sorted(each for each in beside if len(each) <= LONGEST_NAME):
        if len(chosen) == MOST_COMPONENTS:
            break
        if any(isinstance(each, float | int) for each in pick(rows, name)):
            chosen.append(name)
    return {clean(name): floats(pick(rows, name)) for name in chosen}
