"""JSON lines: tinker-cookbook, prime-rl, ms-swift, verl's file logger, a W&B export."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.growing_files import Chunk, Tail
from grpodoctor.support.numbers import parse_number

_NESTED = "data"
"""verl's file logger nests the metrics under this key."""


class JsonLines:
    """Reads a growing file of JSON lines.

    Args:
        path: the file.
        keys: keys of the step and the time.
    """

    name = "jsonl"
    config: Mapping[str, Any] = {}

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._keys = path, keys
        self._tail: Tail[LogRow] = Tail(path, self._parse)

    def read(self) -> Chunk[LogRow]:
        """Read the rows of the next block."""
        return self._tail.read()

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or truncated."""
        return self._tail.was_replaced()

    def rewind(self) -> None:
        """Start over at the first line."""
        self._tail.rewind()

    def _parse(self, line: bytes) -> LogRow:
        data = loads(line)
        if not isinstance(data, dict):
            raise ValueError("not an object")  # noqa: TRY004 - a tail expects ValueError
        return row_of(data, self._keys)


def loads(text: bytes) -> Any:
    """Parse JSON, including `NaN` and `Infinity`, which Python writes although JSON lacks them.

    Raises:
        ValueError: if it is not JSON.
    """
    text = text.removeprefix(codecs.BOM_UTF8)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in text and b"Infinity" not in text:
            raise ValueError(f"not JSON: {error}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def row_of(data: Mapping[str, Any], keys: RowKeys) -> LogRow:
    """Make a row from a parsed object.

    Raises:
        ValueError: if it has too many keys.
    """
    if len(data) > MOST_KEYS:
        raise ValueError(f"{len(data)} keys")
    nested = data.get(_NESTED)
    flat = {**data, **nested} if isinstance(nested, dict) else data
    numbers = {
        key: value for key, each in flat.items() if (value := parse_number(each)) is not None
    }
    texts = {key: value for key, value in flat.items() if isinstance(value, str)}
    step = next((number for key in keys.step if (number := _step(flat.get(key))) is not None), None)
    time = next((numbers[key] for key in keys.time if key in numbers), 0.0)
    not_metrics = {*keys.step, *keys.time}
    values = {key: value for key, value in numbers.items() if key not in not_metrics}
    return LogRow(step, values, time, texts)


def _step(value: object) -> int | None:
    """Parse a step, also from `10/100`, as ms-swift writes it."""
    if value is None:
        return None
    if isinstance(value, str) and len(value) <= 40:
        value = value.partition("/")[0]
    number = parse_number(value)
    if number is None or not 0 <= number < 2**53 or number != int(number):
        return None
    return int(number)


def _claims(path: Path, head: bytes) -> bool:
    if path.suffix in (".jsonl", ".ndjson"):
        return True
    first = head.lstrip().partition(b"\n")[0]
    try:
        return isinstance(loads(first), dict)
    except ValueError:
        return False


FORMAT = LogFormat("jsonl", 50, _claims, JsonLines)
