"""A JSON document with a history: a list of objects, or a list per key."""

from __future__ import annotations

import codecs
import re
from itertools import zip_longest
from pathlib import Path

import orjson

from grpodoctor.runs.log_formats.decoding.nameless_files import has_json_lines
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.runs.log_formats.trainer_state import TrainerState
from grpodoctor.support.numbers import parse_number

_NAMES = ("log_history", "history", "logs", "log", "metrics", "steps", "records", "data",
          "iterations", "updates", "rows", "entries", "training_log", "train_log", "step_log",
          "step_logs", "step_metrics", "per_step",
          "training_history", "train_history")  # fmt: skip
"""Usual keys of a history, most likely first."""

_NOT_LOGS = re.compile(
    r"(.*config|args|tokenizer|special_tokens_map|added_tokens|vocab|wandb-.*|.*index|"
    r"(all|train|eval|test)_results|dataset_info|package)\.json",
    re.IGNORECASE,
)
"""Settings, tokenizers, summaries and other JSON files."""

_HISTORY_KEYS = ("step", "global_step", "iteration", "loss", "reward", "reward_mean", *_NAMES)
"""A history has one of these keys near its beginning."""

_LEADING = b" \t\r\n" + codecs.BOM_UTF8
"""White space and byte order marks before a document."""

_CHECKED_ENTRIES = 20
"""Entries that are searched for a number."""


class JsonHistory(TrainerState):
    """Reads a history that a user's script writes, in any of the usual shapes."""

    name = "json"

    @staticmethod
    def history_of(data: object) -> list[object] | None:
        """Return the entries, one per step; None if there is no history."""
        if isinstance(data, dict):
            inner = next((data[name] for name in _NAMES if _is_nested(data.get(name))), data)
            return _from_columns(inner) if isinstance(inner, dict) else _from_list(inner)
        return _from_list(data)


def _is_nested(value: object) -> bool:
    """Whether a value can contain a history; `steps` may also be a column of step numbers."""
    return isinstance(value, dict) or _from_list(value) is not None


def _from_list(data: object) -> list[object] | None:
    if not isinstance(data, list) or not any(isinstance(entry, dict) for entry in data):
        return None
    return data


def _from_columns(data: dict[str, object]) -> list[object] | None:
    """Make rows from columns; shorter columns are ignored."""
    columns = {key: value for key, value in data.items() if isinstance(value, list) and value}
    if not columns:
        return None
    longest = max(map(len, columns.values()))
    whole = {key: value for key, value in columns.items() if len(value) == longest}
    rows = zip_longest(*whole.values())
    return [dict(zip(whole, row, strict=True)) for row in rows]


def _claims(path: Path, head: bytes) -> bool:
    document = head.lstrip(_LEADING)
    if path.suffix != ".json" or _NOT_LOGS.match(path.name) or document[:1] not in (b"[", b"{"):
        return False
    if has_json_lines(document):  # JSON lines whose file is named as a document
        return False
    try:
        history = JsonHistory.history_of(orjson.loads(document))
    except orjson.JSONDecodeError:  # the document is longer than its head
        return any(f'"{name}"'.encode() in head for name in _HISTORY_KEYS)
    return history is not None and any(
        parse_number(value) is not None
        for entry in history[:_CHECKED_ENTRIES]
        if isinstance(entry, dict)
        for value in entry.values()
    )


FORMAT = LogFormat("json", 30, _claims, JsonHistory)
