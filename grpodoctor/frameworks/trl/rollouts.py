"""TRL's `completions/completions_<step>.parquet`, written with `log_completions`.

The file holds the responses that were generated last, up to the size of a generation batch. An
evaluation writes it again after the training has, under the same name: with its own responses, and
the rest of the training's if it has fewer (`GRPOTrainer.log` in 1.16). If the next step trains on
the same generation (`num_iterations`), its file is a copy.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpodoctor.frameworks.rollout_formats import columns, parquet
from grpodoctor.frameworks.rollout_formats.base import (
    Column,
    DamageLog,
    DumpFormat,
    FilePart,
    Responses,
    last_number,
)
from grpodoctor.support.arrays import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FILE = re.compile(r"completions_\d{1,12}\.parquet")
_TEXTS = ("prompt", "completion")
_REFERENCES = ("answer", "solution", "ground_truth", "reference", "target")
"""Columns of the data set that users log as well, the preferred one first. A `label` may be a class
of the prompt, such as its subject."""
_PUZZLE_NUMBERS = ("nums", "numbers")
"""With such a column, a `target` is a number to reach, and the answer is an expression."""
_ADVANTAGES = ("advantage", "advantages")
_OWN = frozenset(
    ("step", *_TEXTS, *_ADVANTAGES, *_REFERENCES, *_PUZZLE_NUMBERS, "label", "entropy")
)
_MOST_COLUMNS = 200
_CENTRED = 1e-3
"""Sum of the advantages of a group, up to rounding, since its mean is subtracted."""
_BLOCKS, _MIXED, _SMALLEST = 4, 2, 4
"""Groups, those among them with advantages, and responses of a group, at least, before the
responses to one prompt count as several groups: halves of one group may be centred by chance."""


def from_columns(
    table: Mapping[str, Sequence[object]], steps_B: NDArray[np.int64], names: list[str]
) -> Responses:
    """Responses from columns with the names that TRL and ms-swift use.

    The weights of reward functions are unknown, so there is a total reward only for a single one.
    """
    numbers = {
        columns.clean(name): column
        for name, values in list(table.items())[:_MOST_COLUMNS]
        if name not in _OWN and (column := _numbers(values)) is not None
    }
    references = next((table[name] for name in _REFERENCES if name in table), None)
    if "target" in table and any(name in table for name in _PUZZLE_NUMBERS):
        references = None
    advantages = next((table[name] for name in _ADVANTAGES if name in table), None)
    advantages_B = None if advantages is None else columns.if_known(columns.floats(advantages))
    prompts = [columns.text_of(prompt) for prompt in table.get("prompt", [""] * len(names))]
    return Responses(
        steps_B=steps_B,
        names=names,
        groups=_groups(steps_B, prompts, advantages_B),
        prompts=prompts,
        texts=[columns.text_of(text) for text in table.get("completion", [""] * len(names))],
        references=None if references is None else list(map(columns.answer_of, references)),
        rewards_B=next(iter(numbers.values())) if len(numbers) == 1 else None,
        components=numbers,
        advantages_B=advantages_B,
    )


def _groups(
    steps_B: NDArray[np.int64], prompts: list[str], advantages_B: Column | None
) -> list[str]:
    """The prompts, numbered where several groups of a batch have the same one.

    TRL writes the rows of a group next to each other. If all prompts are alike, or some appear
    twice, the rows of one prompt are several groups, and the advantages tell their size: those of
    each group add up to 0.
    """
    keys = list(zip(steps_B.tolist(), prompts, strict=True))
    runs = [(key, len(list(rows))) for key, rows in itertools.groupby(keys)]
    sizes = [size for _, size in runs]
    is_ordinary = len(runs) > 1 == len(set(sizes)) and len(dict(runs)) == len(runs)
    if advantages_B is None or is_ordinary:
        return prompts
    size = _group_size(math.gcd(*sizes), advantages_B)
    if not size or sizes == [size]:
        return prompts
    return [f"{prompt}#{row // size}" for row, prompt in enumerate(prompts)]


def _group_size(most: int, advantages_B: Column) -> int:
    """The smallest number of neighbours whose advantages always add up to 0; 0 without one.

    Args:
        most: a multiple of the size.
        advantages_B: the advantages of whole groups, in their order.
    """
    for size in range(_SMALLEST, most + 1):
        if most % size or advantages_B.size < _BLOCKS * size:
            continue
        blocks = advantages_B.reshape(-1, size)
        mixed = int(np.count_nonzero(np.abs(blocks).max(axis=1) > _CENTRED))
        if mixed >= _MIXED and bool(np.all(np.abs(blocks.sum(axis=1)) <= _CENTRED * size)):
            return size
    return 0


def _numbers(values: Sequence[object]) -> Column | None:
    """A column of numbers; None if it holds texts, lists or objects that users log."""
    if any(isinstance(value, str | list | dict) for value in values):
        return None
    return columns.if_known(columns.floats(values))


def _read(part: FilePart, damage_log: DamageLog) -> Iterator[Responses]:
    name = Path(part.path).name
    for batch, first in parquet.record_batches(part, None, damage_log):
        table: dict[str, Sequence[object]] = {}
        for field in batch.schema.names[:_MOST_COLUMNS]:
            if field in _TEXTS:
                table[field] = parquet.strings(batch, field) or []
            elif field == "step" or field in _PUZZLE_NUMBERS:
                table[field] = batch.column(field).to_pylist()
            elif (column := parquet.doubles(batch, field)) is not None:
                table[field] = column.tolist()
            elif field in _REFERENCES and (answers := parquet.strings(batch, field)) is not None:
                table[field] = answers
        steps = [columns.step_of(step, part.step or 0) for step in table.get("step", ())]
        ids = [f"{name}#{first + row}" for row in range(batch.num_rows)]
        column_of_steps = steps or [part.step or 0] * len(ids)
        yield from_columns(table, np.array(column_of_steps, np.int64), ids)


def _claims(path: Path, head: bytes) -> bool:
    if not head.startswith(parquet.MAGIC):
        return False
    if _FILE.fullmatch(path.name):
        return True
    return {"prompt", "completion", "step"} <= set(parquet.column_names(path))


FORMAT = DumpFormat(
    "TRL completions", "trl", 50, _claims, last_number, parquet.cut_row_groups, _read,
    evaluation_overwrites=True,
)  # fmt: skip
