"""A JSON document with a history: a list of objects, or a list per key."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from itertools import pairwise, zip_longest
from math import isfinite
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeGuard

import orjson

from grpodoctor.frameworks.registry import generic_framework
from grpodoctor.frameworks.row_keys import is_evaluation
from grpodoctor.runs.log_formats.decoding.indexed_objects import without_indices
from grpodoctor.runs.log_formats.decoding.nameless_files import has_json_lines
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.runs.log_formats.trainer_state import TrainerState
from grpodoctor.support.numbers import parse_number

_NAMES = ("log_history", "history", "logs", "log", "metrics", "steps", "records", "data",
          "iterations", "updates", "rows", "entries", "training_log", "train_log", "step_log",
          "step_logs", "step_metrics", "per_step",
          "training_history", "train_history", "curves", "training_curves", "train_curves",
          "learning_curves", "series")  # fmt: skip
"""Usual keys of a history, most likely first."""

_LAST_WORDS = frozenset({"history", "log", "logs", "metrics", "curve", "curves", "records"})
"""Last words of a key that holds a history, such as `metrics_history`."""

_RUN_NAMES = ("run_name", "name", "tag", "experiment", "run", "run_id", "label", "id",
              "algorithm", "method")  # fmt: skip
"""Keys of a run's name in an object that describes it, the most readable first."""

_RUN = "run_name"
"""Column of the rows that names their run."""

_POINT_STEPS = ("step", "global_step", "iteration", "iter", "update", "round", "epoch")
"""Keys of the step of a value, the finest first."""

_STEP_KEYS = frozenset(_POINT_STEPS)
"""Keys that make an object the entry of one step."""

_MIN_STEPS = 8
"""Entries of the columns of one run in a list of runs."""

_SEVERAL = 2
"""Runs that make a document a list of runs."""

_NOT_LOGS = re.compile(
    r"(.*config|args|tokenizer|special_tokens_map|added_tokens|vocab|wandb-.*|.*index|"
    r"(all|train|eval|test)_results|dataset_info|package)\.json",
    re.IGNORECASE,
)
"""Settings, tokenizers, summaries and other JSON files."""

_HISTORY_KEYS = ("step", "global_step", "iteration", "loss", "reward", "reward_mean", "mean_reward",
                 "total_reward", *_NAMES)  # fmt: skip
"""A history has one of these keys near its beginning."""

_COLUMN = re.compile(
    rb'"([A-Za-z][\w./ -]{0,80})"\s{0,40}:\s{0,40}\[\s{0,80}-?\d[\d.eE+-]{0,40}\s{0,9},'
)
"""The beginning of a list of numbers, with its key."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.){0,65536}"')

_COUNTERS = frozenset(
    {"step", "steps", "iteration", "iterations", "iter", "iters", "episode", "episodes", "epoch",
     "epochs", "update", "updates", "round", "rounds", "batch", "batches", "rollout", "rollouts"}
)  # fmt: skip
"""Last words of the key of a column that counts."""

_LEADING = b" \t\r\n" + codecs.BOM_UTF8
"""White space and byte order marks before a document."""

_CHECKED_ENTRIES = 20
"""Entries that are searched for a number."""

_MIN_ENTRIES = 3
"""Entries that count."""

_MAX_DEPTH = 3
"""Objects inside one another that are searched for a history under an unknown name."""


class JsonHistory(TrainerState):
    """Reads a history that a user's script writes, in any of the usual shapes."""

    name = "json"

    @staticmethod
    def history_of(data: object) -> list[object] | None:
        """Return the entries, one per step; None if there is no history."""
        data = without_indices(data)
        several = _several_runs(data)
        if several is not None:
            return several
        if isinstance(data, dict):
            inner = next((data[name] for name in _NAMES if _is_nested(data.get(name))), None)
            if inner is None:
                inner = _counting_list(data) or _named_list(data) or data
            elif isinstance(inner, dict) and _holds_objects(inner):
                inner = _counting_list(inner) or inner
            return _from_columns(inner) if isinstance(inner, dict) else _from_list(inner)
        return _from_list(data)


def _counting_list(data: dict[str, object], depth: int = 0) -> list[object] | None:
    """The longest list under any name whose entries count their steps; None if there is none.

    The entries of an evaluation have numbers too, but seldom count. A list with rewards is the run
    next to the curve of the supervised training before it.
    """
    lists = [value for value in data.values() if _counts(value)]
    if not lists and depth < _MAX_DEPTH:
        inner = (value for value in data.values() if isinstance(value, dict))
        lists = [found for value in inner if (found := _counting_list(value, depth + 1))]
    return max(lists, key=lambda rows: (_has_reward(rows), len(rows)), default=None)


def _named_list(data: dict[str, object]) -> list[object] | None:
    """The list whose key ends in a word for a history, and whose entries have rewards, not steps.

    The saved state of a trainer often keeps its metrics so, in the order of the steps.
    """
    for key, value in data.items():
        is_named = re.split(r"[_./ -]", key.lower())[-1] in _LAST_WORDS and not is_evaluation(key)
        if not is_named or not isinstance(value, list) or len(value) < _MIN_ENTRIES:
            continue
        if all(isinstance(entry, dict) and _has_reward([entry]) for entry in value):
            return value
    return None


def _has_reward(rows: list[object]) -> bool:
    """Whether the first entry has the reward of the batch."""
    generic = generic_framework()
    return any(
        row.metric == "reward/mean"
        for key, _ in _items(rows[0])
        for row, _ in generic.meanings_of(key)
    )


def _holds_objects(columns: dict[str, object]) -> bool:
    """Whether the lists under the keys are lists of objects, each the curve of one training."""
    lists = [value for value in columns.values() if isinstance(value, list) and value]
    return bool(lists) and all(isinstance(value[0], dict) for value in lists)


def _counts(value: object) -> TypeGuard[list[object]]:
    """Whether a value is a list of objects with a step that never falls, and with an outcome."""
    if not isinstance(value, list) or len(value) < _MIN_ENTRIES:
        return False
    entries = [entry for entry in value[:_CHECKED_ENTRIES] if isinstance(entry, dict)]
    if len(entries) < min(len(value), _CHECKED_ENTRIES):
        return False
    names = [key for key in entries[0] if _is_counter(key) and all(key in each for each in entries)]
    return any(_rises([entry[name] for entry in entries]) for name in names) and any(
        generic_framework().knows(key) for key in entries[0] if not _is_counter(key)
    )


def _is_counter(key: str) -> bool:
    """Whether the last word of a key says that it counts: `step`, `useful_step`."""
    return re.split(r"[_./ -]", key.lower())[-1] in _COUNTERS


def _rises(values: Sequence[object]) -> bool:
    """Whether numbers rise from entry to entry."""
    numbers = [parse_number(value) for value in values]
    return all(
        before is not None and after is not None and before < after
        for before, after in pairwise(numbers)
    )


def _several_runs(data: object) -> list[object] | None:
    """The rows of a document that lists runs, each with its history; None if there are no two.

    A row gets the name of its run in a column, as in a table of several runs. Results of a sweep
    often list a run twice, by the setting and in the order of time; it counts once.
    """
    lists = data.values() if isinstance(data, dict) else [data]
    runs: dict[str, list[object]] = {}
    for entries in lists:
        for number, entry in enumerate(entries if isinstance(entries, list) else ()):
            history = _history_in(entry)
            if history is None:
                continue
            name = next((entry[key] for key in _RUN_NAMES if isinstance(entry.get(key), str)), "")
            runs.setdefault(name or f"{len(runs)}-{number}", history)
    if len(runs) < _SEVERAL:
        inner = (value for _, value in _items(data) if isinstance(value, dict))
        runs = max(map(_named_runs, (data, *inner)), key=len)
    if len(runs) < _SEVERAL:
        return None
    return [
        {**row, _RUN: name} for name, rows in runs.items() for row in rows if isinstance(row, dict)
    ]


def _named_runs(data: object) -> dict[str, list[object]]:
    """The histories of a document with an object or a list per run, whose key is the run's name.

    The histories have one key in all runs, or each run has columns or rows of the same keys.
    """
    listed = {key: value for key, value in _items(data) if _counts(value)}
    if len(listed) >= _SEVERAL and not any(_is_part(key) or key in _NAMES for key in listed):
        return listed if _has_one_layout(listed) else {}
    inner = {key: value for key, value in _items(data) if isinstance(value, dict)}
    if any(_is_part(name) for name in inner):
        return {}
    keys = dict.fromkeys(key for run in inner.values() for key in run)
    by_key = (
        {name: run[key] for name, run in inner.items() if _counts(run.get(key))} for key in keys
    )
    runs = max(by_key, key=len, default={})
    if len(runs) >= _SEVERAL:
        return runs
    columns = {name: rows for name, run in inner.items() if (rows := _columns_of_run(run))}
    return columns if _has_one_layout(columns) else {}


def _has_one_layout(runs: dict[str, list[object]]) -> bool:
    """Whether the first rows of all runs have the same keys."""
    return len({frozenset(name for name, _ in _items(rows[0])) for rows in runs.values()}) == 1


def _columns_of_run(run: dict[str, object]) -> list[object]:
    """The rows of a run that is given by columns, one of them the steps; empty if it is not."""
    rows = _from_columns(run) or []
    return rows if _counts(rows) else []


def _items(value: object) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _is_part(name: str) -> bool:
    """Whether a name is that of a part of one run: its evaluation, or one of its metrics."""
    return name in ("train", "training") or is_evaluation(name) or generic_framework().knows(name)


def _history_in(entry: object) -> list[object] | None:
    """The history in an object that describes a run; a step may list its responses instead."""
    if not isinstance(entry, dict) or not _STEP_KEYS.isdisjoint(entry):
        return None
    for key in _NAMES:
        listed = _from_list(entry.get(key))
        if listed is not None:
            return listed
    columns: dict[str, object] = next(
        (entry[key] for key in _NAMES if isinstance(entry.get(key), dict)), {}
    )
    rows = _from_columns(columns) or []
    is_long = len(rows) >= _MIN_STEPS
    return rows if is_long and any(map(generic_framework().knows, columns)) else None


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
    points = {key: value for key, value in columns.items() if all(map(_point, value))}
    if points:
        return _from_points(points)
    longest = max(map(len, columns.values()))
    whole = {key: value for key, value in columns.items() if len(value) == longest}
    rows = zip_longest(*whole.values())
    return [dict(zip(whole, row, strict=True)) for row in rows]


def _begins_columns(head: bytes) -> bool:
    """Whether a document begins with a column of steps, or of numbers under a known name.

    Lists inside another list are no columns: results of an evaluation list the scores of a problem.
    """
    if head[:1] != b"{":
        return False
    lists, position = 0, 0
    for match in _COLUMN.finditer(head):
        before = _STRING.sub(b"", head[position : match.start()])
        lists, position = lists + before.count(b"[") - before.count(b"]"), match.start()
        if lists > 0:
            continue
        key = match[1].decode()
        if _is_counter(key) or generic_framework().knows(key):
            return True
    return False


def _point(entry: object) -> tuple[str, float] | None:
    """The key and the number of the step of `{"step": 10, "value": 0.5}`; None for anything else.

    Columns of such entries have a step for each value, and may have different lengths.
    """
    if not isinstance(entry, dict) or "value" not in entry:
        return None
    name = next((each for each in _POINT_STEPS if each in entry), "")
    step = parse_number(entry.get(name))
    return None if step is None or not isfinite(step) else (name, step)


def _from_points(columns: dict[str, list[Any]]) -> list[object]:
    """Make rows from columns in which each entry has a step, in the order of the steps."""
    rows: dict[tuple[str, float], dict[str, object]] = {}
    for key, entries in columns.items():
        for entry in entries:
            point = _point(entry)
            if point is not None:
                rows.setdefault(point, {point[0]: point[1]})[key] = entry["value"]
    return [rows[point] for point in sorted(rows, key=itemgetter(1))]


def _claims(path: Path, head: bytes) -> bool:
    document = head.lstrip(_LEADING)
    if path.suffix != ".json" or _NOT_LOGS.match(path.name) or document[:1] not in (b"[", b"{"):
        return False
    if has_json_lines(document):  # JSON lines whose file is named as a document
        return False
    try:
        history = JsonHistory.history_of(orjson.loads(document))
    except orjson.JSONDecodeError:  # the document is longer than its head
        return any(f'"{name}"'.encode() in head for name in _HISTORY_KEYS) or _begins_columns(
            document
        )
    return history is not None and any(
        parse_number(value) is not None
        for entry in history[:_CHECKED_ENTRIES]
        if isinstance(entry, dict)
        for value in entry.values()
    )


FORMAT = LogFormat("json", 30, _claims, JsonHistory)
