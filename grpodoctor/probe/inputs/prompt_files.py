"""Reads the rows of text, CSV, JSON, Parquet and Arrow files, one after the other.

Files with one row per line are read as far as their rows are used, so their size does not matter.
"""

from __future__ import annotations

import ast
import codecs
import csv
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, AnyStr, BinaryIO

import orjson

from grpodoctor.errors import DataError
from grpodoctor.probe.inputs.dataset_folders import data_files
from grpodoctor.probe.inputs.json_tables import rows_of_object
from grpodoctor.support.files.regular_files import open_regular
from grpodoctor.support.files.streams import descriptor_of
from grpodoctor.support.json_text import loads

SUFFIXES = ".txt, .csv, .tsv, .jsonl, .json, .parquet and .arrow"

_MAX_BYTES = 1 << 30
_MAX_LINE = 1 << 26
_MAX_CELL = 1 << 24
"""Characters of a cell in a CSV file."""
_RECORDS = ("[{", "{'", '{"')
"""How a cell of a CSV file begins that holds a list of messages or an object."""


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """A row that cannot be read."""

    reason: str


def file_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The place and the content of each row: text, an object or a `DamagedRow`.

    Args:
        path: a file, or the folder of a data set, whose training files are read.

    Raises:
        DataError: if the file is missing, has an unknown suffix, or cannot be read as a whole.
    """
    if path.is_dir():
        for file in data_files(path, _TABLES):
            for place, row in file_rows(file):
                yield f"{file.relative_to(path)}, {place}", row
        return
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"unknown suffix {path.suffix!r}: prompts are read from {SUFFIXES}",
            where=str(path),
            remedy="rename the file according to its content",
        )
    try:
        yield from reader(path)
    except OSError as error:
        raise DataError(
            f"the prompts cannot be read: {error.strerror or error}",
            where=str(path),
            remedy="check --prompts",
        ) from None


def _open(path: Path) -> BinaryIO:
    # A shell substitution has a writer; another pipe may have none and would block.
    is_stream = descriptor_of(str(path)) is not None
    return path.open("rb") if is_stream else open_regular(path)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines with content, numbered from one."""
    with _open(path) as file:
        for number, line in enumerate(_bounded(file, path), start=1):
            content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if content.strip():
                yield number, content


def _bounded(file: IO[AnyStr], path: Path) -> Iterator[AnyStr]:
    """The lines of a file.

    Raises:
        DataError: if one is too long to be kept in memory.
    """
    number = 0
    while line := file.readline(_MAX_LINE):
        number += 1
        if len(line) == _MAX_LINE:
            raise DataError(
                f"a line has more than {_MAX_LINE >> 20} MiB",
                where=f"{path}, line {number}",
                remedy="check the format of the file",
            )
        yield line


def _text_lines(path: Path) -> Iterator[tuple[str, Any]]:
    for number, line in _lines(path):
        try:
            text: Any = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            text = DamagedRow("the row is not UTF-8 text")
        yield f"line {number}", text


def _json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    for number, line in _lines(path):
        yield f"line {number}", _parsed(line)


def _parsed(line: bytes) -> Any:
    try:
        return loads(line)
    except ValueError as error:
        return DamagedRow(str(error))


def _json(path: Path) -> Iterator[tuple[str, Any]]:
    """A list, one object that holds the rows, or one object per line, as many files hold."""
    with _open(path) as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise DataError(
            f"the file has more than {_MAX_BYTES >> 20} MiB",
            where=str(path),
            remedy="write one object per line to a .jsonl file",
        )
    content = content.removeprefix(codecs.BOM_UTF8)
    if content.lstrip()[:1] == b"[":
        yield from _json_list(content, path)
        return
    if (rows := _json_object(content, path)) is not None:
        yield from rows
        return
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            yield f"line {number}", _parsed(line)


def _json_object(content: bytes, path: Path) -> Iterator[tuple[str, Any]] | None:
    """The rows in an object that is the whole file; None if the file has one object per line."""
    first = content.lstrip().partition(b"\n")[0]
    try:
        loads(first)
    except ValueError:
        pass  # the object continues on the next lines
    else:
        if first.strip() != content.strip():
            return None
    try:
        data = loads(content)
    except ValueError:
        return None
    try:
        rows = rows_of_object(data) if isinstance(data, dict) else None
    except ValueError as error:
        raise DataError(
            str(error), where=str(path), remedy="write the rows to train on to a file of their own"
        ) from None
    return iter([("line 1", data)]) if rows is None else rows


def _json_list(content: bytes, path: Path) -> Iterator[tuple[str, Any]]:
    try:
        entries = loads(content)
    except ValueError as error:
        raise DataError(str(error), where=str(path), remedy="check the file") from None
    for number, entry in enumerate(entries, start=1):
        yield f"entry {number}", entry


def _csv(path: Path) -> Iterator[tuple[str, Any]]:
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_CELL))
    with _open(path) as binary, io.TextIOWrapper(binary, "utf-8-sig", newline="") as file:
        try:
            lines = _bounded(file, path)
            header = next(lines, "")
            delimiter = max(",;\t", key=header.count)
            columns = next(csv.reader([header], delimiter=delimiter), [])
            for number, cells in enumerate(csv.reader(lines, delimiter=delimiter), start=1):
                if cells:
                    values = map(_cell, cells)
                    yield f"row {number}", dict(zip(columns, values, strict=False))
        except (UnicodeDecodeError, csv.Error) as error:
            what = "not UTF-8 text" if isinstance(error, ValueError) else f"not CSV: {error}"
            raise DataError(
                f"the file is {what}", where=str(path), remedy="save it as CSV in UTF-8"
            ) from None


def _cell(text: str) -> Any:
    """A cell; lists of messages and objects become what they were before they were written."""
    if not text.startswith(_RECORDS):
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's parser, about odd escapes
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except FileNotFoundError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:  # also text that is not UTF-8
        raise DataError(
            f"not a Parquet file: {str(error)[:120]}", where=str(path), remedy="check the file"
        ) from None


def _arrow(path: Path) -> Iterator[tuple[str, Any]]:
    """A file of `Dataset.save_to_disk`."""
    import pyarrow as pa

    number = 0
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as batches:
            for batch in batches:
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except (ValueError, pa.ArrowException) as error:
        raise DataError(
            f"not an Arrow file: {str(error)[:120]}", where=str(path), remedy="check the file"
        ) from None


_READERS: dict[str, Callable[[Path], Iterator[tuple[str, Any]]]] = {
    "": _text_lines,
    ".txt": _text_lines,
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
_TABLES = frozenset(_READERS) - {"", ".txt"}
"""Formats of data sets."""
