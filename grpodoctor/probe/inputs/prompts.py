"""The prompts of a probe: the user's, in whatever form they are, or built-in ones.

Engines get them as `{"text": …}`, `{"messages": […]}` or `{"ids": […]}`, see `probes/contract.py`.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from grpodoctor.errors import DataError

Prompt = Mapping[str, Any]

TEXT_COLUMNS = ("prompt", "question", "problem", "input", "text")
"""Where a row's text is looked for, in this order; `messages` and `prompt_token_ids` come first."""

_MOST_BYTES = 1 << 30
_LONGEST = 1_000_000
"""Characters or ids of a prompt."""
_MOST_MESSAGES = 1000
_MOST_ID = 1 << 31
_FORMS = "a text, messages or prompt_token_ids"


def read_prompts(path: Path, limit: int) -> list[Prompt]:
    """The first prompts of a file.

    Args:
        path: `.txt` with a prompt a line; `.jsonl` or `.ndjson` with an object or a text a line;
            `.json` with a list of these; `.parquet` with a column of `TEXT_COLUMNS`, `messages` or
            `prompt_token_ids`.
        limit: how many are wanted.

    Raises:
        DataError: if it is missing, damaged, too large, has no prompt, or a row is none.
    """
    return [prompt for _, _, prompt in read_rows(path, limit)]


def read_rows(
    path: Path, limit: int, *, every_column: bool = False
) -> list[tuple[str, Any, Prompt]]:
    """The first rows of a file: where each stands, the row, and the prompt in it.

    Args:
        path: as for `read_prompts`.
        limit: how many are wanted.
        every_column: whether rows of Parquet are to have more than the prompt's columns.

    Raises:
        DataError: if it is missing, damaged, too large, has no prompt, or a row is none.
    """
    rows = [
        (place, row, _prompt(row, f"{path}, {place}"))
        for place, row in islice(_rows(path, every_column=every_column), limit)
    ]
    if not rows:
        raise DataError("there is no prompt in the file", where=str(path), remedy="check --prompts")
    return rows


def _rows(path: Path, *, every_column: bool) -> Iterator[tuple[str, Any]]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _parquet(path, every_column=every_column)
    content = _read(path)
    if suffix in (".jsonl", ".ndjson"):
        return _json_lines(content, path)
    if suffix == ".json":
        # Many files called .json hold an object a line.
        is_list = content.lstrip()[:1] == b"["
        return _json_list(content, path) if is_list else _json_lines(content, path)
    if suffix in (".txt", ""):
        return _text_lines(content, path)
    raise DataError(
        f"prompts are read from .txt, .jsonl, .json and .parquet, not from {suffix!r}",
        where=str(path),
        remedy="name the file after what it holds",
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:  # a device has no size and no end
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(content) > _MOST_BYTES:
        raise DataError(
            f"more than {_MOST_BYTES >> 20} MiB of prompts are more than a probe reads",
            where=str(path),
            remedy="give a file with fewer",
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
            raise DataError("not UTF-8", where=f"{path}, line {number}") from None
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
                    remedy=f"name one {', '.join(wanted)}",
                )
            number = 0
            chosen = None if every_column else columns
            for batch in file.iter_batches(batch_size=256, columns=chosen):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except FileNotFoundError as error:
        raise _unreadable(path, error) from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"not a Parquet file: {str(error)[:120]}", where=str(path)) from None


def _prompt(row: Any, where: str) -> Prompt:
    """A row in the form that engines get.

    Raises:
        DataError: if there is no prompt in it.
    """
    if isinstance(row, str):
        return _text(row, where)
    if not isinstance(row, dict):
        raise DataError("the row is neither a text nor an object", where=where)
    if row.get("messages") is not None:
        return _messages(row["messages"], where)
    if row.get("prompt_token_ids") is not None:
        return _ids(row["prompt_token_ids"], where)
    for column in TEXT_COLUMNS:
        value = row.get(column)
        if isinstance(value, list):  # as verl and TRL keep conversations
            return _messages(value, where)
        if value is not None:
            return _text(value, where)
    raise DataError(
        "the row has no prompt", where=where, remedy=f"give {_FORMS}: {', '.join(TEXT_COLUMNS)}"
    )


def _text(value: object, where: str) -> Prompt:
    if not isinstance(value, str) or not value.strip():
        raise DataError("the prompt is not a text", where=where)
    return {"text": _short(value, where)}


def _messages(value: object, where: str) -> Prompt:
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_MESSAGES:
        raise DataError("messages are not a list of them", where=where)
    messages = []
    for message in value:
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(role, str) or not isinstance(content, str):
            raise DataError(
                "a message has no role or no content that is a text",
                where=where,
                remedy='write {"role": "user", "content": "…"}',
            )
        messages.append({"role": role, "content": _short(content, where)})
    return {"messages": messages}


def _ids(value: object, where: str) -> Prompt:
    good = isinstance(value, list) and all(
        type(each) is int and 0 <= each < _MOST_ID for each in value
    )
    if not good or not value:
        raise DataError("prompt_token_ids are not a list of ids", where=where)
    return {"ids": _short(value, where)}


def _short(value: Any, where: str) -> Any:
    if len(value) > _LONGEST:
        raise DataError(
            f"the prompt is longer than {_LONGEST:,} characters or ids",
            where=where,
            remedy="leave it out",
        )
    return value


def shown(prompts: Iterable[Prompt]) -> list[str]:
    """What a report shows of each prompt: its text, hostile as it is."""
    return [_shown(each) for each in prompts]


def _shown(prompt: Prompt) -> str:
    if "text" in prompt:
        return str(prompt["text"])
    messages: Sequence[Mapping[str, str]] = prompt.get("messages", ())
    if messages:
        return "\n".join(f"{each['role']}: {each['content']}" for each in messages)
    return f"{len(prompt.get('ids', ()))} token ids"
