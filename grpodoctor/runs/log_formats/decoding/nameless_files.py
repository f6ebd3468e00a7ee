"""The kind of a log whose name does not show it: standard input, or a document saved as text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import orjson

from grpodoctor.support.numbers import parse_number

_UNSPECIFIC = ("", ".txt", ".log", ".out")
_DOCUMENT = re.compile(rb'[\s\xef\xbb\xbf]*[\[{]\s*(?:["{\[]|$)')
"""The beginning of a JSON document; console lines such as `[INFO]` or `{'loss'` do not match."""
_CHECKED_LINES = 5
_LEAST_COLUMNS = 3


def likely_names(path: Path, head: bytes) -> list[Path]:
    """The path, and the names that a file with this content usually has.

    Args:
        path: the file.
        head: its first bytes.
    """
    if path.suffix.lower() not in _UNSPECIFIC:
        return [path]
    return [path, *(path.with_suffix(suffix) for suffix in _suffixes(head))]


def _suffixes(head: bytes) -> Iterator[str]:
    if _DOCUMENT.match(head) and not has_json_lines(head):
        yield ".json"
        if b'"cells"' in head:
            yield ".ipynb"
    elif is_table(head):
        yield ".csv"


def has_json_lines(head: bytes) -> bool:
    """Whether the first of several lines is a document of its own."""
    first, *others = head.strip().splitlines()
    try:
        orjson.loads(first.strip())
    except orjson.JSONDecodeError:
        return False
    return bool(others)


def is_table(head: bytes) -> bool:
    """Whether a text has a header of names, and below it lines of as many cells, mostly numbers."""
    lines = head.decode("utf-8-sig", "replace").splitlines()[: _CHECKED_LINES + 1]
    for delimiter in ",\t;":
        try:
            header, *rows = csv.reader(lines, delimiter=delimiter, strict=True)
        except (csv.Error, ValueError):
            continue
        whole_rows = rows[:-1] or rows  # the head may end within the last one
        if len(header) >= _LEAST_COLUMNS and whole_rows and _are_names(header):
            return all(len(row) == len(header) and _is_numeric(row) for row in whole_rows)
    return False


def _are_names(cells: list[str]) -> bool:
    return all(parse_number(cell) is None and len(cell) < 200 for cell in cells)


def _is_numeric(cells: list[str]) -> bool:
    filled = [cell for cell in cells if cell.strip()]
    return 2 * sum(parse_number(cell) is not None for cell in filled) >= len(filled) > 0
