"""A Jupyter notebook: the tables and the printed rows of the cells that trained."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.row_keys import MOST_KEYS, RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.json_rows import RowDecoder
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.runs.log_formats.trainer_state import TrainerState
from grpodoctor.support.files.growing_files import Chunk, Damage
from grpodoctor.support.json_text import loads

NOTEBOOK = "notebook"
"""Name of the format."""

_STEP = "Step"
"""The first column of the table that transformers shows during training."""

_COLUMNS: Mapping[str, str] = {"Training Loss": "loss", "Validation Loss": "eval_loss"}
"""Columns with a title instead of the name of their metric."""

_SPACED_SLASH = re.compile(r"\s*/\s*")


class Notebook(TrainerState):
    """Reads the training of a notebook that was saved with its outputs.

    transformers shows a table that grows by a row per logged step; other scripts print rows as on a
    console. A notebook often has a cell that fine-tunes before the cell that reinforces: cells
    without a reward are left out if another cell has one.

    Args:
        path: the file.
        keys: keys of the step and the time.
    """

    name = NOTEBOOK

    def _parse(self, text: bytes) -> Chunk[LogRow]:
        try:
            cells = loads(text)["cells"]
        except (ValueError, KeyError, TypeError) as error:
            return Chunk(damage=[Damage(self.path.name, 0, f"not a notebook: {error}")])
        if not isinstance(cells, list):
            return Chunk(damage=[Damage(self.path.name, 0, "a notebook without cells")])
        trainings = [rows for cell in cells if (rows := self._rows_of(cell))]
        rewarded = [rows for rows in trainings if _has_reward(rows)]
        notes = []
        if rewarded and len(rewarded) < len(trainings):
            notes.append(f"cells without a reward are not used: {_cells_of(trainings, rewarded)}")
        rows = [row for training in (rewarded or trainings) for row in training]
        fresh = rows[self._read_entries :]
        self._read_entries = max(self._read_entries, len(rows))
        return Chunk(fresh, size=len(text), notes=notes)

    def _rows_of(self, cell: object) -> list[LogRow]:
        """The rows that a cell shows, in their order."""
        from grpodoctor.runs.log_formats.decoding.html_tables import tables_of

        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        rows: list[LogRow] = []
        printed: list[str] = []
        for output in outputs if isinstance(outputs, list) else ():
            if not isinstance(output, dict):
                continue
            data = output.get("data")
            if isinstance(data, dict):
                for table in tables_of(_text(data.get("text/html"))):
                    rows += _rows_of_table(table, self._keys)
            printed.append(_text(output.get("text")))
        return _with_reward(rows, self._printed_rows("".join(printed)))

    def _printed_rows(self, text: str) -> list[LogRow]:
        """The rows of a cell's printed text; a row without a step counts within its cell."""
        from grpodoctor.runs.log_formats.decoding.console_reader import Console

        console = Console(self.path, self._keys)
        rows, _ = console.parse(text.split("\n"))
        if not self.config:
            self.config = console.config
        return rows


def _rows_of_table(table: list[list[str]], keys: RowKeys) -> list[LogRow]:
    """The rows of a training table; none for other tables."""
    header = [cell.strip() for cell in table[0]] if table else []
    if header[:1] != [_STEP] or not 2 <= len(header) <= MOST_KEYS:
        return []
    names = [_COLUMNS.get(title, _SPACED_SLASH.sub("/", title)) for title in header]
    names[0] = "step"
    rows: list[dict[str, Any]] = [
        {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
        for cells in table[1:]
        if len(cells) == len(names)
    ]
    decoder = RowDecoder(keys)
    return [decoder.row(row) for row in rows]


def _with_reward(shown: list[LogRow], printed: list[LogRow]) -> list[LogRow]:
    """The rows of a cell's tables, and its printed rows if only these have a reward.

    Many versions of TRL show a table of the loss alone, and a callback prints the reward.
    """
    if not shown:
        return printed
    if _has_reward(shown) or not _has_reward(printed):
        return shown
    if any(row.step is None for row in (*shown, *printed)):
        return printed
    return sorted([*shown, *printed], key=lambda row: row.step or 0)


def _has_reward(rows: Sequence[LogRow]) -> bool:
    return any("reward" in key or "score" in key for row in rows for key in row.values)


def _cells_of(trainings: Sequence[list[LogRow]], used: Sequence[list[LogRow]]) -> str:
    left = [rows for rows in trainings if not any(rows is other for other in used)]
    return f"{len(left)} with {sum(map(len, left))} rows"


def _text(value: object) -> str:
    """A notebook stores a text as a list of lines."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _claims(path: Path, head: bytes) -> bool:
    return path.suffix == ".ipynb" and head.lstrip()[:1] == b"{"


FORMAT = LogFormat(NOTEBOOK, 5, _claims, Notebook)
