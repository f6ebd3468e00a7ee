"""Rows of a JSON file that is a single object: a list below a key, columns, or rows by their id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from grpodoctor.probe.inputs.prompt_columns import PROMPT_COLUMNS

_MESSAGE_KEYS = ({"role", "content"}, {"from", "value"})


def rows_of_object(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]] | None:
    """The place and the content of each row in an object; None if it is a row itself.

    An object with a prompt is a row, which may have lists of objects, too: its tools, for example.
    Layouts: `{"data": [row, …]}`, also next to other values; columns as lists or as objects by
    index, as pandas writes a table by default; rows by their id.

    Raises:
        ValueError: if it has several lists of rows; the message names them.
    """
    if any(key.casefold() in PROMPT_COLUMNS and _is_prompt(each) for key, each in content.items()):
        return None
    tables = {key: value for key, value in content.items() if _is_table(value)}
    if len(tables) > 1:
        raise ValueError(f"it has several lists of rows: {', '.join(sorted(tables))}")
    if tables:
        ((name, rows),) = tables.items()
        return ((f"{name}, entry {at}", row) for at, row in enumerate(rows, start=1))
    values = list(content.values())
    if len(values) < 2:
        return None
    if all(isinstance(value, list) for value in values):
        return _from_columns(content, {len(value) for value in values})
    if not all(isinstance(value, dict) for value in values):
        return None
    keys = list(values[0])
    if all(list(value) == keys for value in values) and _are_indices(keys):
        columns = {name: list(column.values()) for name, column in content.items()}
        return _from_columns(columns, {len(keys)})
    return ((f"entry {key}", row) for key, row in content.items())


def _is_table(value: object) -> bool:
    """Whether a value is a list of rows, and not the messages of a conversation."""
    return _are_objects(value) and not _is_prompt(value)


def _is_prompt(value: object) -> bool:
    """Whether a value is a text or the messages of a conversation."""
    if isinstance(value, str):
        return True
    return _are_objects(value) and any(
        keys <= message.keys() for message in value for keys in _MESSAGE_KEYS
    )


def _are_objects(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _are_indices(keys: list[str]) -> bool:
    return bool(keys) and all(key.isdecimal() for key in keys)


def _from_columns(
    columns: Mapping[str, list[Any]], lengths: set[int]
) -> Iterator[tuple[str, Any]] | None:
    if len(lengths) != 1:
        return None
    cells = zip(*columns.values(), strict=True)
    return (
        (f"entry {at}", dict(zip(columns, row, strict=True)))
        for at, row in enumerate(cells, start=1)
    )
