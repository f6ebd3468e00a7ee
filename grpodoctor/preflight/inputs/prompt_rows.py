"""The training data: prompts with reference answers, read from the columns that trainers use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from grpodoctor.errors import ConfigError, DataError
from grpodoctor.probe.inputs.prompts import read_rows
from grpodoctor.support.files.atomic_files import atomic_path

ANSWER_COLUMNS = ("answer", "solution", "ground_truth", "gold", "label", "target", "reference")
"""Columns that may hold the answer, in order of preference; then verl's `reward_model`."""
MAX_ROWS = 20_000
"""Rows that are read: enough for every figure of a preflight."""
_OUTPUT_SUFFIXES = (".jsonl", ".parquet")


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

    def conversation(self) -> list[dict[str, Any]]:
        """The messages for a chat template."""
        if self.messages:
            return [dict(message) for message in self.messages]
        return [{"role": "user", "content": self.prompt}]


def read_prompt_rows(path: Path) -> tuple[PromptRow, ...]:
    """The rows of a data file.

    Raises:
        DataError: if the file is missing or damaged, or a row has no prompt.
    """
    return tuple(
        _prompt_row(location, columns, prompt)
        for location, columns, prompt in read_rows(path, MAX_ROWS, every_column=True)
    )


def _prompt_row(location: str, columns: Any, prompt: Mapping[str, Any]) -> PromptRow:
    known = columns if isinstance(columns, dict) else {}
    messages = tuple(prompt.get("messages", ()))
    user_texts = [each["content"] for each in messages if each["role"] == "user"]
    text = prompt.get("text") or (user_texts[-1] if user_texts else "")
    if "ids" in prompt:
        raise DataError(
            "preflight requires prompts as text or messages, not as token ids",
            where=location,
            remedy="use the file before tokenization",
        )
    return PromptRow(location, str(text), messages, _answer(known), known)


def _answer(columns: Mapping[str, Any]) -> str | None:
    reward_model = columns.get("reward_model")
    nested = reward_model.get("ground_truth") if isinstance(reward_model, dict) else None
    for value in (*(columns.get(name) for name in ANSWER_COLUMNS), nested):
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, list) and value and isinstance(value[0], str):
            return value[0]
    return None


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
