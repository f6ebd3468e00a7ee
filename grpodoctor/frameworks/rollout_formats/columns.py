"""Turns parsed JSON rows into columns. Values of any type give a valid column."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast

from grpodoctor.frameworks.rollout_formats.base import Column
from grpodoctor.measure.ragged import Ragged
from grpodoctor.support.arrays import np
from grpodoctor.support.numbers import parse_number
from grpodoctor.support.safe_text import clean_text

DumpRow = Mapping[str, Any]

LARGEST_STEP = 2**53
MOST_COMPONENTS = 64
"""Limit on the extra numbers of a response that count as reward components."""
LONGEST_NAME = 80
_MOST_RESPONSES = 1_000_000
"""Responses of one row."""


def floats(values: Sequence[object]) -> Column:
    """Numbers as doubles: NaN for values that are not numbers, infinity for non-finite ones."""
    types = set(map(type, values))
    if types <= {float, int, bool}:
        try:
            column = np.array(values, np.float64)
        except OverflowError:
            column = np.array([_float(value) for value in values])
    else:
        column = np.array([_float(value) for value in values], np.float64)
    if types - {bool, int}:
        is_nan = np.isnan(column)
        if is_nan.any():
            is_number = np.array([parse_number(value) is not None for value in values])
            column[is_nan & is_number] = np.inf
    return column


def _float(value: object) -> float:
    try:
        number = parse_number(value)
    except OverflowError:
        return math.inf
    return math.nan if number is None else number


def values_of(rows: Sequence[DumpRow], key: str) -> list[object]:
    """The value of a key in every row."""
    return [row.get(key) for row in rows]


def if_known(column: Column) -> Column | None:
    """The column; None if all its values are unknown."""
    return None if np.isnan(column).all() else column


def numbers(rows: Sequence[DumpRow], key: str) -> Column | None:
    """The numbers under a key; None if no row has one."""
    values = values_of(rows, key)
    return None if all(value is None for value in values) else if_known(floats(values))


def lists(rows: Sequence[DumpRow], key: str, kind: type[np.generic] | None = None) -> Ragged:
    """The lists of numbers under a key; a row without one has an empty list."""
    return ragged(values_of(rows, key), kind or np.float64)


def texts(rows: Sequence[DumpRow], key: str) -> list[str]:
    """The texts under a key; a row without one has an empty text."""
    values = values_of(rows, key)
    if set(map(type, values)) == {str}:
        return cast("list[str]", values)
    return [value if type(value) is str else text_of(value) for value in values]


def answers(rows: Sequence[DumpRow], key: str) -> list[str]:
    """The short texts and numbers under a key; a row with anything else has an empty text."""
    return list(map(answer_of, values_of(rows, key)))


def answer_of(value: object) -> str:
    """A reference answer that is a text or a number; empty text for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return str(value) if math.isfinite(value) else ""


def text_of(value: object) -> str:
    """A text, or the text of a chat message or of a list of messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return text_of(value.get("content"))
    if isinstance(value, list):
        return "\n".join(text_of(part) for part in value[:1000] if isinstance(part, str | dict))
    return ""


def clean(text: str) -> str:
    """Text without lone surrogates."""
    return text if text.isascii() else clean_text(text)


def steps(rows: Sequence[DumpRow], key: str, fallback: int | None) -> np.ndarray[Any, Any]:
    """The step of every row: from the row, else from the file's name, else 0."""
    default = 0 if fallback is None else fallback
    values = values_of(rows, key)
    if set(map(type, values)) == {int}:
        integers = cast("list[int]", values)
        if min(integers) >= 0 and max(integers) < LARGEST_STEP:
            return np.array(integers, np.int64)
    return np.array([step_of(value, default) for value in values], np.int64)


def step_of(value: object, default: int) -> int:
    """A step as number or text; the default if it is not a valid step."""
    if isinstance(value, int) and not isinstance(value, bool):
        step: float | None = value if abs(value) < LARGEST_STEP else None
    else:
        step = parse_number(value)
    if step is None or not 0 <= step < LARGEST_STEP:
        return default
    return int(step)


def ragged(values: Sequence[object], kind: type[np.generic] | None = None) -> Ragged:
    """Lists of numbers; any other value counts as an empty list."""
    rows = [value if isinstance(value, list) else [] for value in values]
    lengths = np.array([len(row) for row in rows], np.int64)
    total = int(lengths.sum())
    try:
        flat = np.fromiter(chain.from_iterable(rows), np.float64, total)
    except (TypeError, ValueError, OverflowError):
        flat = np.array([_float(value) for row in rows for value in row], np.float64)
    if kind is np.int64:
        with np.errstate(invalid="ignore"):
            flat = np.nan_to_num(flat, nan=-1, posinf=-1, neginf=-1).astype(np.int64)
    return Ragged.of_lengths(flat, lengths)


def flags(column: Column) -> Column:
    """A column of zeros and ones; all other values become unknown."""
    return np.where((column == 0) | (column == 1), column, np.nan)


def has_values(column: Ragged) -> bool:
    """Whether any list has an entry."""
    return column.values_N.size > 0


def extra_numbers(rows: Sequence[DumpRow], own_keys: frozenset[str]) -> dict[str, Column]:
    """Columns of the numbers under keys that are not the framework's own."""
    layouts = set(map(tuple, rows))
    extra = {key for layout in layouts for key in layout if key not in own_keys}
    chosen: list[str] = []
    for name in sorted(key for key in extra if len(key) <= LONGEST_NAME):
        if len(chosen) == MOST_COMPONENTS:
            break
        if any(isinstance(value, float | int) for value in values_of(rows, name)):
            chosen.append(name)
    return {clean(name): floats(values_of(rows, name)) for name in chosen}


def responses_in_lists(row: DumpRow, key: str) -> Iterator[dict[str, Any]]:
    """The responses of a row that has a list per column; none if it has too many.

    Args:
        row: the row of a file.
        key: the column of the responses' texts. Lists of another length are not about responses.
    """
    texts = row.get(key)
    if not isinstance(texts, list) or len(texts) > _MOST_RESPONSES:
        return
    count = len(texts)
    lists = {name: v for name, v in row.items() if isinstance(v, list) and len(v) == count}
    for index in range(count):
        yield {name: values[index] for name, values in lists.items()}


def flattened(
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    responses_of: Callable[[dict[str, Any]], Iterable[dict[str, Any]]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """The responses of rows that hold several each, and their names.

    Args:
        rows: the rows of a file.
        names: a name for each row; a response adds its place.
        responses_of: gives the responses of a row.
    """
    flat: list[dict[str, Any]] = []
    ids: list[str] = []
    for row, name in zip(rows, names, strict=True):
        for index, response in enumerate(responses_of(row)):
            flat.append(response)
            ids.append(f"{name}/{index}")
    return flat, ids
