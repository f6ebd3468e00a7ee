"""Reads the user's prompts from text, CSV, JSON and Parquet files.

Engines receive them as `{"text": …}`, `{"messages": […]}` or `{"ids": […]}`; see
`probes/contract/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from grpodoctor.errors import DataError
from grpodoctor.probe.inputs.prompt_files import DamagedRow, file_rows

Prompt = Mapping[str, Any]

TEXT_COLUMNS = ("prompt", "question", "problem", "input", "text")
"""Columns searched for text, in this order, after `messages` and `prompt_token_ids`."""

_MAX_LENGTH = 1_000_000
"""Most characters or ids of a prompt."""
_MAX_MESSAGES = 1000
_MAX_ID = 1 << 31
_REMOVE = "correct or remove the row"
_FORMS = "text, messages or prompt_token_ids"


def read_prompts(path: Path, limit: int) -> list[Prompt]:
    """The first prompts of a file.

    Args:
        path: `.txt` with one prompt per line; `.csv` or `.tsv` with a header; `.jsonl` or
            `.ndjson` with one object or string per line; `.json` with a list of these; `.parquet`.
            Prompts are in a column of `TEXT_COLUMNS`, `messages` or `prompt_token_ids`.
        limit: maximum number of prompts.

    Raises:
        DataError: if the file is missing, damaged or too large, has no prompts, or a row has none.
    """
    prompts = [_prompt(row, f"{path}, {place}") for place, row in islice(file_rows(path), limit)]
    if not prompts:
        raise DataError("the file has no prompts", where=str(path), remedy="check --prompts")
    return prompts


def _prompt(row: Any, where: str) -> Prompt:
    """The prompt of a row, in the form that engines receive.

    Raises:
        DataError: if the row has no prompt.
    """
    if isinstance(row, DamagedRow):
        raise DataError(row.reason, where=where, remedy=_REMOVE)
    if isinstance(row, str):
        return _text(row, where)
    if not isinstance(row, dict):
        raise DataError("the row is neither a string nor an object", where=where, remedy=_REMOVE)
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
        raise DataError("the prompt is not a non-empty string", where=where, remedy=_REMOVE)
    return {"text": _checked_length(value, where)}


def _messages(value: object, where: str) -> Prompt:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_MESSAGES:
        raise DataError("messages is not a list of messages", where=where, remedy=_REMOVE)
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
        raise DataError("prompt_token_ids is not a list of token ids", where=where, remedy=_REMOVE)
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
