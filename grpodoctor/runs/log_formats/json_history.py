"""One JSON document with a history in it: a list of objects, or a list for each key."""

from __future__ import annotations

import codecs
import re
from itertools import zip_longest
from pathlib import Path

import orjson

from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.runs.log_formats.trainer_state import TrainerState
from grpodoctor.support.numbers import parse_number

_NAMES = ("log_history", "history", "logs", "log", "metrics", "steps", "records", "data")
"""Keys under which people keep a history, likeliest first."""

_OTHERS = re.compile(
    r"(.*config|args|tokenizer|special_tokens_map|added_tokens|vocab|wandb-.*|.*index|"
    r"(all|train|eval|test)_results|dataset_info|package)\.json",
    re.IGNORECASE,
)
"""Settings, tokenizers and summaries: what else lies about as JSON."""

_TELLING = ("step", "global_step", "iteration", "loss", "reward", "reward_mean", *_NAMES)
"""Keys of which a history has one near its beginning."""

_BEFORE = b" \t\r\n" + codecs.BOM_UTF8
"""What may stand before a document."""

_LOOKED_AT = 20
"""Entries that are searched for a number."""


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
    document = head.lstrip(_BEFORE)
    if path.suffix != ".json" or _OTHERS.match(path.name) or document[:1] not in (b"[", b"{"):
        return False
    try:
        history = JsonHistory.history_of(orjson.loads(document))
    except orjson.JSONDecodeError:  # longer than what was looked at
        return any(f'"{name}"'.encode() in head for name in _TELLING)
    return history is not None and any(
        parse_number(value) is not None
        for entry in history[:_LOOKED_AT]
        if isinstance(entry, dict)
        for value in entry.values()
    )


FORMAT = LogFormat("json", 30, _claims, JsonHistory)
