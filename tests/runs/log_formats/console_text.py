"""Console text as tests write and read it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.console_reader import Console

VERL = "step:{step} - actor/entropy:0.31 - actor/pg_loss:-0.002 - critic/score/mean:{reward}"
"""A row as verl prints it."""


def rows_of(text: str, directory: Path, keys: RowKeys | None = None) -> list[LogRow]:
    path = directory / "train.log"
    path.write_text(text, encoding="utf-8", newline="")
    reader = Console(path, keys or RowKeys())
    return [*reader.read().records, *reader.read().records]


def settings_of(text: str, directory: Path) -> Mapping[str, object]:
    path = directory / "train.log"
    path.write_text(text, encoding="utf-8")
    reader = Console(path, RowKeys())
    reader.read()
    return reader.config


def seen(rows: list[LogRow]) -> list[tuple[int | None, dict[str, float]]]:
    return [(row.step, dict(row.values)) for row in rows]


def bar(step: int, total: int = 100) -> str:
    return f"\r  {step}%|▌         | {step}/{total} [00:10<09:00,  5.4s/it]"


def written(text: str, directory: Path) -> Path:
    path = directory / "job.log"
    path.write_text(text, encoding="utf-8")
    return path
