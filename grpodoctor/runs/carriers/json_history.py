"""One JSON document with a history in it: a list of objects, or a list for each key."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from grpodoctor.runs.carriers.catalogue import Format
from grpodoctor.runs.carriers.trainer_state import TrainerState

_NAMES = ("log_history", "history", "logs", "log", "metrics", "steps", "records", "data")
"""Keys under which people keep a history, likeliest first."""


class JsonHistory(TrainerState):
    """A history that somebody's own script writes, in whichever of the usual shapes."""

    name = "json"

    @staticmethod
    def history_of(data: object) -> list[object] | None:
        """The entries, one for each step."""
        if isinstance(data, dict):
            inner = next((data[name] for name in _NAMES if name in data), data)
            return _from_columns(inner) if isinstance(inner, dict) else _from_list(inner)
        return _from_list(data)


def _from_list(data: object) -> list[object] | None:
    if not isinstance(data, list) or not any(isinstance(entry, dict) for entry in data):
        return None
    return data


def _from_columns(data: dict[str, object]) -> list[object] | None:
    """The rows of a table that is kept by columns; columns of other lengths are no part of it."""
    columns = {key: value for key, value in data.items() if isinstance(value, list) and value}
    if not columns:
        return None
    longest = max(map(len, columns.values()))
    whole = {key: value for key, value in columns.items() if len(value) == longest}
    rows = zip_longest(*whole.values())
    return [dict(zip(whole, row, strict=True)) for row in rows]


def _claims(path: Path, head: bytes) -> bool:
    return path.suffix == ".json" and head.lstrip()[:1] in (b"[", b"{")


FORMAT = Format("json", 30, _claims, JsonHistory)
