"""TRL's `completions/completions_<step>.parquet`, written with `log_completions`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grpodoctor.frameworks.rollout_formats import columns as of
from grpodoctor.frameworks.rollout_formats import parquet
from grpodoctor.frameworks.rollout_formats.base import (
    Column,
    DumpFormat,
    Notes,
    Piece,
    Responses,
    last_number,
)

_FILE = re.compile(r"completions_\d{1,12}\.parquet")
_TEXTS = ("prompt", "completion")
_ADVANTAGES = ("advantage", "advantages")
_OWN = frozenset(("step", *_TEXTS, *_ADVANTAGES, "entropy"))
_MOST_COLUMNS = 200


def from_columns(
    table: Mapping[str, Sequence[object]], steps_B: NDArray[np.int64], names: list[str]
) -> Responses:
    """Columns as TRL and ms-swift name them.

    Of several reward functions the weights are not known: then only one is the reward.
    """
    numbers = {
        of.clean(name): column
        for name, values in list(table.items())[:_MOST_COLUMNS]
        if name not in _OWN and (column := _numbers(values)) is not None
    }
    advantages = next((table[name] for name in _ADVANTAGES if name in table), None)
    prompts = [of.text_of(each) for each in table.get("prompt", [""] * len(names))]
    return Responses(
        steps_B=steps_B,
        names=names,
        groups=prompts,
        prompts=prompts,
        texts=[of.text_of(each) for each in table.get("completion", [""] * len(names))],
        rewards_B=next(iter(numbers.values())) if len(numbers) == 1 else None,
        components=numbers,
        advantages_B=None if advantages is None else of.known(of.floats(advantages)),
    )


def _numbers(values: Sequence[object]) -> Column | None:
    """A column of numbers; None if most of it are none, as in what users log beside."""
    if any(isinstance(each, str | list | dict) for each in values):
        return None
    return of.known(of.floats(values))


def _read(piece: Piece, notes: Notes) -> Iterator[Responses]:
    name = Path(piece.path).name
    for batch, first in parquet.record_batches(piece, None, notes):
        table: dict[str, Sequence[object]] = {}
        for field in batch.schema.names[:_MOST_COLUMNS]:
            if field in _TEXTS:
                table[field] = parquet.strings(batch, field) or []
            elif field == "step":
                table[field] = batch.column(field).to_pylist()
            elif (column := parquet.doubles(batch, field)) is not None:
                table[field] = column.tolist()
        steps = [of.step_of(each, piece.step or 0) for each in table.get("step", ())]
        ids = [f"{name}#{first + row}" for row in range(batch.num_rows)]
        column_of_steps = steps or [piece.step or 0] * len(ids)
        yield from_columns(table, np.array(column_of_steps, np.int64), ids)


def _claims(path: Path, head: bytes) -> bool:
    if not head.startswith(parquet.MAGIC):
        return False
    if _FILE.fullmatch(path.name):
        return True
    return {"prompt", "completion", "step"} <= set(parquet.column_names(path))


FORMAT = DumpFormat(
    "TRL completions", "trl", 50, _claims, last_number, parquet.cut_row_groups, _read
)
