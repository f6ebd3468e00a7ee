"""Responses in one document: a JSON list of rows, an object with such a list, a W&B table, or CSV.

The cells of such a CSV file may contain line breaks, so it is read at once.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from grpodoctor.errors import RunError
from grpodoctor.frameworks.generic.rollouts_without_steps import skip_reason
from grpodoctor.frameworks.registry import GENERIC
from grpodoctor.frameworks.rollout_formats.base import (
    DamageLog,
    DumpFormat,
    FilePart,
    Responses,
)
from grpodoctor.frameworks.rollout_formats.dump_file import ENDLESS, HEAD_BYTES, DumpFile
from grpodoctor.frameworks.rollout_formats.response_rows import (
    are_responses,
    repeats_a_step,
    responses_of,
    step_key,
    step_of,
)
from grpodoctor.support.numbers import parse_number

_MOST_BYTES = 64 * 1024 * 1024
"""Larger documents are refused: a document is parsed at once."""
_ROWS_OF = ("outputs", "rollouts", "samples", "results", "responses")
"""Names of the list of rows in a document that is an object."""
_LIST = re.compile(rf'"(?:{"|".join(_ROWS_OF)})"\s*:\s*\[\s*(?=\{{)')
_TABLE = re.compile(r'\A\s*\{\s*"columns"\s*:\s*(?=\[)')
_DATA = re.compile(r'\s*,\s*(?:"index"\s*:\s*\[[^\]]*\]\s*,\s*)?"data"\s*:\s*\[\s*(?=\[)')
_TABLES = (".csv", ".tsv")
_FIRST_ROWS = 64
_DECODER = json.JSONDecoder()


def _claims(path: Path, head: bytes) -> bool:
    if path.suffix in _TABLES:
        rows = _table_rows(path, head.decode("utf-8-sig", "replace"))[:_FIRST_ROWS]
        is_cut = len(head) == HEAD_BYTES and len(rows) < _FIRST_ROWS
        rows = rows[:-1] if is_cut else rows
        return are_responses(rows) and (not step_key(rows) or repeats_a_step(rows))
    if path.suffix != ".json":
        return False
    row = _first_row(head.decode("utf-8", "replace"))
    return row is not None and are_responses([row])


def _table_rows(path: Path, text: str) -> list[dict[str, Any]]:
    """The rows of a CSV file; empty if it is no table."""
    if "\0" in text:
        return []
    delimiter = "\t" if path.suffix == ".tsv" else ","
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error:
        return []
    return [
        {key: _cell(value) for key, value in row.items() if isinstance(key, str)} for row in rows
    ]


def _cell(text: object) -> object:
    """The number or truth value that a cell spells; other cells as they are."""
    if text in ("True", "False"):
        return text == "True"
    number = parse_number(text)
    return text if number is None else number


def _first_row(text: str) -> dict[str, Any] | None:
    """The first row of a document, from its beginning; None if there is none."""
    try:
        if table := _TABLE.match(text):
            names, end = _DECODER.raw_decode(text, table.end())
            data = _DATA.match(text, end)
            return _row(names, _DECODER.raw_decode(text, data.end())[0]) if data else None
        if text.lstrip().startswith("["):
            start = re.compile(r"\s*\[\s*").match(text)
        else:
            start = _LIST.search(text)
        row = _DECODER.raw_decode(text, start.end())[0] if start else None
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _row(names: object, values: object) -> dict[str, Any] | None:
    if not isinstance(names, list) or not isinstance(values, list):
        return None
    return dict(zip(map(str, names), values, strict=False))


def _rows(document: object) -> list[dict[str, Any]]:
    if isinstance(document, dict) and "columns" in document and "data" in document:
        data = document["data"] if isinstance(document["data"], list) else []
        document = [_row(document["columns"], values) for values in data]
    elif isinstance(document, dict):
        lists = (document.get(name) for name in _ROWS_OF)
        document = next((rows for rows in lists if isinstance(rows, list) and rows), [])
    rows = document if isinstance(document, list) else []
    return [row for row in rows if isinstance(row, dict)]


def _cut(path: Path | DumpFile, size: int) -> list[tuple[int, int]]:
    del path, size
    return [(0, ENDLESS)]


def _read(part: FilePart, damage_log: DamageLog) -> Iterator[Responses]:
    name = Path(part.path).name
    with part.source.open() as file:
        content: bytes = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise RunError(
            f"a document of more than {_MOST_BYTES >> 20} MiB, which is read at once",
            where=name,
            remedy="write JSON lines, one response per line",
        )
    try:
        if Path(name).suffix in _TABLES:
            document: object = _table_rows(Path(name), content.decode("utf-8-sig", "replace"))
        else:
            document = orjson.loads(content)
    except ValueError:
        try:
            document = json.loads(content)  # NaN, as Python writes it
        except (ValueError, RecursionError) as error:
            damage_log.damaged_at(name, 0, f"not a JSON document: {error}")
            return
    rows = _rows(document)
    responses = responses_of(rows, [f"{name}#{row}" for row in range(len(rows))], part)
    if responses is not None:
        yield responses


FORMAT = DumpFormat(
    "generic response document", GENERIC, 92, _claims, step_of, _cut, _read, skip_reason
)
