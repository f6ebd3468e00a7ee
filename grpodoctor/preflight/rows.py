"""The training data: prompts with their answers, in the columns that trainers' data have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from grpodoctor.errors import ConfigError, DataError
from grpodoctor.preflight.context import Row
from grpodoctor.probe.inputs.prompts import read_rows

ANSWER_COLUMNS = ("answer", "solution", "ground_truth", "gold", "label", "target", "reference")
"""Where a row's answer is looked for, in this order; then in `reward_model`, as verl keeps it."""
_WRITTEN = (".jsonl", ".parquet")
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


def check_target(path: Path, source: Path | None) -> None:
    """Refuse at once a file that filtered prompts cannot be written to.

    Raises:
        ConfigError: if it is that of the prompts, of another kind, or in no directory.
    """
    why = ""
    if source is not None and path.resolve() == source.resolve():
        why = "the filtered prompts would take the place of all prompts"
    elif path.suffix.lower() not in _WRITTEN:
        why = f"prompts are written to {' and '.join(_WRITTEN)}, not to {path.suffix or 'no'!r}"
    elif not path.parent.is_dir() or path.is_dir():
        why = "there is no such directory, or it is one itself"
    if why:
        raise ConfigError(why, where=f"--write-filtered {path}", remedy="name another file")


def write_rows(rows: list[Row], path: Path) -> None:
    """Write rows as JSON lines or Parquet, aside and renamed.

    What JSON cannot hold becomes text.

    Raises:
        DataError: if they cannot be written.
    """
    columns = [row.columns or {"prompt": row.prompt, "answer": row.answer} for row in rows]
    aside = path.with_name(f".{path.name}.tmp")
    try:
        if path.suffix.lower() == ".parquet":
            _write_parquet(columns, aside)
        else:
            lines = (orjson.dumps(each, default=str) + b"\n" for each in columns)
            aside.write_bytes(b"".join(lines))
        aside.replace(path)
    except OSError as error:
        raise DataError(
            f"the filtered prompts cannot be written: {error.strerror}",
            where=str(path),
            remedy="name a file in a directory that you can write to",
        ) from error


def _write_parquet(columns: list[Mapping[str, Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.write_table(pa.Table.from_pylist([dict(each) for each in columns]), path)
    except pa.ArrowException as error:
        raise DataError(
            f"the filtered prompts do not fit a table: {' '.join(str(error).split())[:120]}",
            where=str(path),
            remedy="name a file that ends in .jsonl",
        ) from error
