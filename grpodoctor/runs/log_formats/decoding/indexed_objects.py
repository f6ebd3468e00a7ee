"""Objects whose keys are numbers: rows by their step, and columns by their index."""

from __future__ import annotations

from typing import Any

_MIN_ROWS = 3
"""Rows of a history."""
_LONGEST_NAME = 64
"""Characters of a text in a row of a log; a response is longer."""
_STEP_NAMES = frozenset({"step", "global_step", "iteration", "iter", "update", "round"})


def without_indices(data: object, depth: int = 2) -> object:
    """A document whose indexed objects are lists, as other programs write them.

    Rows by their step, `{"10": {"reward": 0.5}, …}`, become a list of rows with a step. Columns by
    their index, `{"reward": {"0": 0.5, …}, …}`, as pandas writes a table, become lists.

    Args:
        data: a parsed JSON document.
        depth: objects inside one another that are searched.
    """
    if not isinstance(data, dict) or not data:
        return data
    values = list(data.values())
    if all(isinstance(value, dict) for value in values):
        if _are_steps(data) and not any(map(_holds_text, values)):
            return [_with_step(int(key), data[key]) for key in sorted(data, key=int)]
        index = values[0]
        if _are_steps(index) and all(_is_column(value, index) for value in values):
            return _columns(data, index)
    if not depth:
        return data
    return {key: without_indices(value, depth - 1) for key, value in data.items()}


def _are_steps(data: dict[str, Any]) -> bool:
    return len(data) >= _MIN_ROWS and all(key.isdecimal() for key in data)


def _is_column(value: dict[str, Any], index: dict[str, Any]) -> bool:
    """Whether an object has the keys of an index, and a number or a text for each."""
    cells = value.values()
    return value.keys() == index.keys() and not any(isinstance(each, dict | list) for each in cells)


def _holds_text(row: dict[str, Any]) -> bool:
    """Whether a row has a text, as a response to a prompt has."""
    return any(isinstance(value, str) and len(value) > _LONGEST_NAME for value in row.values())


def _with_step(step: int, row: dict[str, Any]) -> dict[str, Any]:
    return row if not _STEP_NAMES.isdisjoint(row) else {"step": step, **row}


def _columns(data: dict[str, Any], index: dict[str, Any]) -> dict[str, list[Any]]:
    """Columns of equal length; the index is the step if it is no mere count of the rows."""
    columns = {key: [column[at] for at in index] for key, column in data.items()}
    steps = [int(at) for at in index]
    if _STEP_NAMES.isdisjoint(columns) and steps != list(range(len(steps))):
        return {"step": steps, **columns}
    return columns
