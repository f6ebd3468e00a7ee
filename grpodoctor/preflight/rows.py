"""The training data: prompts with their answers, in the columns that trainers' data have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from grpodoctor.errors import DataError
from grpodoctor.preflight.patient import Row
from grpodoctor.probe.prompts import read_rows

ANSWER_COLUMNS = ("answer", "solution", "ground_truth", "gold", "label", "target", "reference")
"""Where a row's answer is looked for, in this order; then in `reward_model`, as verl keeps it."""
MOST_ROWS = 20_000
"""That are looked at: enough for every figure of a preflight."""


def training_rows(path: Path) -> tuple[Row, ...]:
    """The rows of a data file.

    Raises:
        DataError: if it is missing, damaged or has no prompt.
    """
    return tuple(
        _row(place, columns, prompt)
        for place, columns, prompt in read_rows(path, MOST_ROWS, every_column=True)
    )


def _row(place: str, columns: Any, prompt: Mapping[str, Any]) -> Row:
    known = columns if isinstance(columns, dict) else {}
    messages = tuple(prompt.get("messages", ()))
    spoken = [each["content"] for each in messages if each["role"] == "user"]
    text = prompt.get("text") or (spoken[-1] if spoken else "")
    if "ids" in prompt:
        raise DataError(
            "a preflight needs prompts as text or messages, and these are token ids",
            where=place,
            remedy="give the file that the trainer tokenises",
        )
    return Row(place, str(text), messages, _answer(known), known)


def _answer(columns: Mapping[str, Any]) -> str | None:
    reward = columns.get("reward_model")
    nested = reward.get("ground_truth") if isinstance(reward, dict) else None
    for value in (*(columns.get(name) for name in ANSWER_COLUMNS), nested):
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, list) and value and isinstance(value[0], str):
            return value[0]
    return None


def write_rows(rows: list[Row], path: Path) -> None:
    """Write rows as JSON lines, aside and renamed; what JSON cannot hold becomes text.

    Raises:
        DataError: if it cannot be written.
    """
    aside = path.with_name(f".{path.name}.tmp")
    try:
        with aside.open("wb") as file:
            for row in rows:
                columns = row.columns or {"prompt": row.prompt, "answer": row.answer}
                file.write(orjson.dumps(columns, default=str) + b"\n")
        aside.replace(path)
    except OSError as error:
        raise DataError(
            f"the filtered prompts cannot be written: {error.strerror}",
            where=str(path),
            remedy="name a file in a directory that you can write to",
        ) from error
