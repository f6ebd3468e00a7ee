"""The training data: prompts with reference answers, in the layouts that trainers use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from grpodoctor.errors import DataError
from grpodoctor.preflight.inputs.columns import (
    OPTION_COLUMNS,
    answer_of,
    conversation_of,
    messages_in,
    messages_of_roles,
    text_of,
    value_of,
)
from grpodoctor.probe.inputs.prompt_columns import PROMPT_COLUMNS
from grpodoctor.probe.inputs.prompt_files import DamagedRow, file_rows

MAX_ROWS = 20_000
"""Rows that are read: enough for every figure of a preflight."""
_MAX_CHARACTERS = 1_000_000
"""Of a prompt."""
_NAMED_COLUMNS = 12
"""Columns that an error lists."""


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A prompt of the training data."""

    location: str
    """File and line or row."""
    prompt: str
    """The text; for a conversation, the user's last message."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """The conversation, if the data has one."""
    answer: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The whole row, for reward functions that ask for columns by name."""
    prompt_column: str = ""
    """The column that holds the prompt; empty if the rows are plain text."""
    number: int = 0
    """Position in the file, from 0."""

    def conversation(self) -> list[dict[str, Any]]:
        """The messages for a chat template."""
        if self.messages:
            return [dict(message) for message in self.messages]
        return [{"role": "user", "content": self.prompt}]

    def texts(self) -> list[str]:
        """The text of each message, or the prompt."""
        return [text_of(message.get("content")) for message in self.messages] or [self.prompt]

    def user_texts(self) -> list[str]:
        """The text of each of the user's messages; empty for a prompt without messages."""
        return [text_of(each.get("content")) for each in self.messages if each["role"] == "user"]

    def identity(self) -> str:
        """Everything that makes the prompt what it is: all messages, and the options of a choice.

        Questions with the same stem and other options are different questions.
        """
        options = [self.columns.get(name) for name in OPTION_COLUMNS]
        return "\n".join([*self.texts(), *(str(each) for each in options if each)])


@dataclass(frozen=True, slots=True)
class RowDefect:
    """A row that cannot be used."""

    location: str
    reason: str


@dataclass(frozen=True, slots=True)
class PromptTable:
    """The rows of a data file."""

    rows: tuple[PromptRow, ...] = ()
    defects: tuple[RowDefect, ...] = ()
    """The rows without a usable prompt."""
    is_complete: bool = True
    """Whether the whole file was read."""
    suffix: str = ""
    """Suffix of the file's name, which is its format."""


@dataclass(frozen=True, slots=True)
class PromptColumns:
    """The columns that the user names; empty to recognize them."""

    prompt: str = ""
    answer: str = ""


def read_prompt_table(
    path: Path, named: PromptColumns = PromptColumns(), most: int = MAX_ROWS
) -> PromptTable:
    """The rows of a data file. A row without a prompt is a defect of this row alone.

    Raises:
        DataError: if the file is missing or damaged, or no row has a prompt.
    """
    rows: list[PromptRow] = []
    defects: list[RowDefect] = []
    contents = file_rows(path)
    columns: dict[str, None] = {}
    for number, (location, content) in enumerate(islice(contents, most)):
        columns |= dict.fromkeys(map(str, content if isinstance(content, dict) else ()))
        try:
            rows.append(_prompt_row(number, location, content, named))
        except _UnusableRowError as error:
            defects.append(RowDefect(location, str(error)))
    if not rows:
        raise _no_prompt(path, defects, list(columns), named)
    return PromptTable(
        tuple(rows), tuple(defects), next(contents, None) is None, path.suffix.lower()
    )


class _UnusableRowError(Exception):
    """A row without a prompt; the message says why."""


def _no_prompt(
    path: Path, defects: list[RowDefect], columns: list[str], named: PromptColumns
) -> DataError:
    if not defects:
        return DataError("the file has no rows", where=str(path), remedy="check --prompts")
    first = defects[0]
    if not columns:
        return DataError(
            f"no row can be read; the first: {first.reason}",
            where=f"{path}, {first.location}",
            remedy="correct the file: JSON lines, JSON, CSV or Parquet with one prompt per row",
        )
    seen = ", ".join(columns[:_NAMED_COLUMNS]) or "none"
    wanted = named.prompt or ", ".join(PROMPT_COLUMNS)
    return DataError(
        f"no row has a prompt; the first: {first.reason}",
        where=f"{path}, {first.location}; columns: {seen}",
        remedy=f"pass --prompt-column NAME, or name a column {wanted}"
        if not named.prompt
        else f"pass an existing column with --prompt-column, not {wanted!r}",
    )


def _prompt_row(number: int, location: str, content: Any, named: PromptColumns) -> PromptRow:
    if isinstance(content, DamagedRow):
        raise _UnusableRowError(content.reason)
    if isinstance(content, str):
        return PromptRow(location, _checked(content), number=number)
    if not isinstance(content, dict):
        raise _UnusableRowError("the row is neither a string nor an object")
    column, value = _prompt_value(content, named.prompt)
    messages = conversation_of(value)
    text = _question(messages) if messages else value if isinstance(value, str) else ""
    return PromptRow(
        location, _checked(text), messages or (), answer_of(content, named.answer), content,
        column, number,
    )  # fmt: skip


def _prompt_value(content: Mapping[str, Any], named: str) -> tuple[str, Any]:
    other: object = None
    for name in (named,) if named else PROMPT_COLUMNS:
        column, value = value_of(content, name)
        if isinstance(value, Mapping):
            value = messages_in(value) or value
        if isinstance(value, str | list) and value:
            return column, value
        other = value if other is None else other
    if not named and (messages := messages_of_roles(content)):
        return "user", messages
    if other is not None and not isinstance(other, str | list):
        raise _UnusableRowError(f"the prompt is {other!r:.40}, neither text nor messages")
    if any(value_of(content, name)[0] for name in PROMPT_COLUMNS) and not named:
        raise _UnusableRowError("the prompt is empty")
    if value_of(content, named)[0]:
        raise _UnusableRowError(f"the column {named!r} is empty")
    if "prompt_token_ids" in content:
        raise _UnusableRowError("the prompt is token ids, but text or messages are required")
    raise _UnusableRowError("the row has no column with a prompt")


def _question(messages: tuple[Mapping[str, Any], ...]) -> str:
    """The user's last message with text, or else the last message that has any."""
    by_user = [each for each in messages if each["role"] == "user"]
    texts = (text_of(each.get("content")) for each in reversed(by_user or messages))
    return next((text for text in texts if text.strip()), "")


def _checked(text: str) -> str:
    if not text.strip():
        raise _UnusableRowError("the prompt is empty")
    if len(text) > _MAX_CHARACTERS:
        raise _UnusableRowError(f"the prompt is longer than {_MAX_CHARACTERS:,} characters")
    return text


def spread_rows(rows: tuple[PromptRow, ...], most: int) -> Iterator[PromptRow]:
    """The first rows, spread evenly over the file, so that a sorted file is seen as a whole."""
    step = max(len(rows) / most, 1.0)
    yield from (rows[int(index * step)] for index in range(min(len(rows), most)))
