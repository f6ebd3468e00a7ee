"""Writing the prompts of suitable difficulty."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from grpodoctor.errors import ConfigError, DataError
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.support.files.atomic_files import atomic_path

_OUTPUT_SUFFIXES = (".jsonl", ".parquet")


def check_output_path(path: Path, source: Path | None) -> None:
    """Refuse, before any engine runs, a file to which filtered prompts cannot be written.

    Raises:
        ConfigError: if it is the input file, has another suffix, or its directory does not exist.
    """
    problem = ""
    if source is not None and path.resolve() == source.resolve():
        problem = "the filtered prompts would overwrite --prompts"
    elif path.suffix.lower() not in _OUTPUT_SUFFIXES:
        suffixes = " or ".join(_OUTPUT_SUFFIXES)
        problem = f"filtered prompts are written as {suffixes}, not as {path.suffix!r}"
    elif not path.parent.is_dir() or path.is_dir():
        problem = "the directory does not exist, or the path is a directory"
    if problem:
        raise ConfigError(problem, where=f"--write-filtered {path}", remedy="name another file")


def write_rows(rows: list[PromptRow], path: Path) -> None:
    """Write rows atomically as JSON lines or Parquet.

    Values that JSON cannot hold become text.

    Raises:
        DataError: if the file cannot be written.
    """
    columns = [row.columns or {"prompt": row.prompt, "answer": row.answer} for row in rows]
    try:
        with atomic_path(path) as temporary:
            if path.suffix.lower() == ".parquet":
                _write_parquet(columns, temporary, path)
            else:
                lines = (orjson.dumps(row, default=str) + b"\n" for row in columns)
                temporary.write_bytes(b"".join(lines))
    except OSError as error:
        raise DataError(
            f"the filtered prompts cannot be written: {error.strerror}",
            where=str(path),
            remedy="name a file in a writable directory",
        ) from error


def _write_parquet(columns: list[Mapping[str, Any]], temporary: Path, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in columns]), temporary)
    except pa.ArrowException as error:
        raise DataError(
            f"the filtered prompts do not fit a table: {' '.join(str(error).split())[:120]}",
            where=str(path),
            remedy="name a file that ends in .jsonl",
        ) from error
