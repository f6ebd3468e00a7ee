"""Reads the user's prompts from text, JSON and Parquet files.

Engines receive them as `{"text": …}`, `{"messages": […]}` or `{"ids": […]}`; see
`probes/contract/__init__.py`.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from grpodoctor.errors import DataError
from grpodoctor.support.files.regular_files import open_regular
from grpodoctor.support.files.streams import descriptor_of

Prompt = Mapping[str, Any]

TEXT_COLUMNS = ("prompt", "question", "problem", "input", "text")
"""Columns searched for text, in this order, after `messages` and `prompt_token_ids`."""

_MAX_BYTES = 1 << 30
_MAX_LENGTH = 1_000_000
"""Most characters or ids of a prompt."""
_MAX_MESSAGES = 1000
_MAX_ID = 1 << 31
_FORMS = "text, messages or prompt_token_ids"


def read_prompts(path: Path, limit: int) -> list[Prompt]:
    """The first prompts of a file.

    Args:
        path: `.txt` with one prompt per line; `.jsonl` or `.ndjson` with one object or string per
            line; `.json` with a list of these; `.parquet` with a column of `TEXT_COLUMNS`,
            `messages` or `prompt_token_ids`.
        limit: maximum number of prompts.

    Raises:
        DataError: if the file is missing, damaged or too large, has no prompts, or a row has none.
    """
    return [prompt for _, _, prompt in read_rows(path, limit)]


def read_rows(
    path: Path, limit: int, *, every_column: bool = False
) -> list[tuple[str, Any, Prompt]]:
    """The first rows of a file: the place of each row, the row, and its prompt.

    Args:
        path: as for `read_prompts`.
        limit: maximum number of rows.
        every_column: whether rows of Parquet include columns other than the prompt's.

    Raises:
        DataError: if the file is missing, damaged or too large, has no prompts, or a row has none.
    """
    rows = [
        (place, row, _prompt(row, f"{path}, {place}"))
        for place, row in islice(_rows(path, every_column=every_column), limit)
    ]
    if not rows:
        raise DataError("the file has no prompts", where=str(path), remedy="check --prompts")
    return rows


def _rows(path: Path, *, every_column: bool) -> Iterator[tuple[str, Any]]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _parquet(path, every_column=every_column)
    content = _read(path)
    if suffix in (".jsonl", ".ndjson"):
        return _json_lines(content, path)
    if suffix == ".json":
        # Many .json files hold one object per line.
        is_list = content.lstrip()[:1] == b"["
        return _json_list(content, path) if is_list else _json_lines(content, path)
    if suffix in (".txt", ""):
        return _text_lines(content, path)
    raise DataError(
        f"unknown suffix {suffix!r}: prompts are read from .txt, .jsonl, .json and .parquet",
        where=str(path),
        remedy="rename the file according to its content",
    )


def _read(path: Path) -> bytes:
    try:
        # A shell substitution has a writer; another pipe may have none and would block.
        is_stream = descriptor_of(str(path)) is not None
        with path.open("rb") if is_stream else open_regular(path) as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(content) > _MAX_BYTES:
        raise DataError(
            f"the file has more than {_MAX_BYTES >> 20} MiB",
            where=str(path),
            remedy="pass a file with fewer prompts",
        )
    return content.removeprefix(codecs.BOM_UTF8)


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"the prompts cannot be read: {error.strerror}", where=str(path), remedy="check --prompts"
    )


def _text_lines(content: bytes, path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(
                "the file is not UTF-8 text",
                where=f"{path}, line {number}",
                remedy="save it as UTF-8",
            ) from None
        if text.strip():
            yield f"line {number}", text


def _json_lines(content: bytes, path: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            yield f"line {number}", _parsed(line, f"{path}, line {number}")


def _json_list(content: bytes, path: Path) -> Iterator[tuple[str, Any]]:
    yield from ((f"entry {at}", row) for at, row in enumerate(_parsed(content, str(path)), start=1))


def _parsed(text: bytes, where: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DataError(f"not JSON: {error}", where=where) from None


def _parquet(path: Path, *, every_column: bool) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = ("messages", "prompt_token_ids", *TEXT_COLUMNS)
    try:
        with pq.ParquetFile(path) as file:
            columns = [name for name in wanted if name in file.schema_arrow.names]
            if not columns:
                raise DataError(
                    "the file has no column with prompts",
                    where=str(path),
                    remedy=f"name a column {', '.join(wanted)}",
                )
            number = 0
            chosen = None if every_column else columns
            for batch in file.iter_batches(batch_size=256, columns=chosen):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except FileNotFoundError as error:
        raise _unreadable(path, error) from None
    except (OSError, ValueError, pa.ArrowException) as error:  # also text that is not UTF-8
        raise DataError(f"not a Parquet file: {str(error)[:120]}", where=str(path)) from None


def _prompt(row: Any, where: str) -> Prompt:
    """The prompt of a row, in the form that engines receive.

    Raises:
        DataError: if the row has no prompt.
    """
    if isinstance(row, str):
        return _text(row, where)
    if not isinstance(row, dict):
        raise DataError("the row is neither a string nor an object", where=where)
    if row.get("messages") is not None:
        return _messages(row["messages"], where)
    if row.get("prompt_token_ids") is not None:
        return _ids(row["prompt_token_ids"], where)
    for column in TEXT_COLUMNS:
        value = row.get(column)
        if isinstance(value, list):  # verl and TRL store conversations so
            return _messages(value, where)
        if value is not None:
            return _text(value, where)
    raise DataError(
        "the row has no prompt", where=where, remedy=f"add {_FORMS}: {', '.join(TEXT_COLUMNS)}"
    )


def _text(value: object, where: str) -> Prompt:
    if not isinstance(value, str) or not value.strip():
        raise DataError("the prompt is not a non-empty string", where=where)
    return {"text": _checked_length(value, where)}


def _messages(value: object, where: str) -> Prompt:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_MESSAGES:
        raise DataError("messages is not a list of messages", where=where)
    messages = []
    for message in value:
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(role, str) or not isinstance(content, str):
            raise DataError(
                "a message has no role or content string",
                where=where,
                remedy='write {"role": "user", "content": "…"}',
            )
        messages.append({"role": role, "content": _checked_length(content, where)})
    return {"messages": messages}


def _ids(value: object, where: str) -> Prompt:
    are_ids = isinstance(value, list) and all(
        type(token) is int and 0 <= token < _MAX_ID for token in value
    )
    if not are_ids or not value:
        raise DataError("prompt_token_ids is not a list of token ids", where=where)
    return {"ids": _checked_length(value, where)}


def _checked_length(value: Any, where: str) -> Any:
    if len(value) > _MAX_LENGTH:
        raise DataError(
            f"the prompt is longer than {_MAX_LENGTH:,} characters or ids",
            where=where,
            remedy="remove it",
        )
    return value


def shown(prompts: Iterable[Prompt]) -> list[str]:
    """The text of each prompt for a report; it is untrusted."""
    return [_shown(prompt) for prompt in prompts]


def _shown(prompt: Prompt) -> str:
    if "text" in prompt:
        return str(prompt["text"])
    messages: Sequence[Mapping[str, str]] = prompt.get("messages", ())
    if messages:
        return "\n".join(f"{message['role']}: {message['content']}" for message in messages)
    return f"{len(prompt.get('ids', ()))} token ids"
