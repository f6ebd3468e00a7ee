"""`trainer_state.json` of transformers: the whole history, rewritten at every checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpodoctor.errors import RunError
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.jsonl import loads, row_of
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.damage import Damage
from grpodoctor.support.growing_files import Chunk
from grpodoctor.support.regular_files import open_regular

_LARGEST = 64 * 1024 * 1024
"""Bytes of a history that is read: that of a hundred thousand steps has as many."""

_HISTORY = "log_history"

TRAINER_STATE = "trainer_state"
"""Name of the format."""

TRAINER_STATE_FILE = "trainer_state.json"

_GLOBAL_STEP = re.compile(rb'"global_step":\s{0,8}(\d{1,12})')


class TrainerState:
    """A history that is replaced as a whole, and begins with what it held before.

    Args:
        path: the file.
        keys: where step and time stand in its entries.
    """

    name = TRAINER_STATE

    @staticmethod
    def history_of(data: object) -> list[object] | None:
        """The entries in what the file holds; None if it holds none."""
        history = data.get(_HISTORY) if isinstance(data, dict) else None
        return history if isinstance(history, list) else None

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._keys = path, keys
        self.config: Mapping[str, Any] = {}
        self.rewind()

    def rewind(self) -> None:
        """Start over at the first entry."""
        self._seen: tuple[int, int, int] | None = None
        self._given = 0

    def was_replaced(self) -> bool:
        """Whether the history is gone, or another run's: it only ever grows."""
        return self._seen is not None and not self.path.is_file()

    def read(self) -> Chunk[LogRow]:
        """The entries that were not there before."""
        if not self.path.is_file():
            return Chunk()
        status = self.path.stat()
        seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        if seen == self._seen:
            return Chunk()
        if status.st_size > _LARGEST:
            self._seen = seen
            return Chunk(damage=[Damage(self.path.name, 0, f"larger than {_LARGEST} bytes")])
        with open_regular(self.path) as file:
            text = file.read(min(status.st_size, _LARGEST))
        chunk = self._parse(text)
        self._seen = seen
        return chunk

    def _parse(self, text: bytes) -> Chunk[LogRow]:
        try:
            state = loads(text)
        except ValueError as error:
            # A checkpoint in the making; the next look finds it whole.
            return Chunk(damage=[Damage(self.path.name, 0, str(error))])
        history = self.history_of(state)
        if history is None:
            return Chunk(damage=[Damage(self.path.name, 0, "no history of steps in it")])
        chunk = Chunk[LogRow](size=len(text))
        fresh, self._given = history[self._given :], max(self._given, len(history))
        for number, entry in enumerate(fresh, start=1):
            if isinstance(entry, dict):
                chunk.records.append(row_of(entry, self._keys))
            else:
                chunk.damage.append(Damage(self.path.name, number, "not an object"))
        return chunk


def progress_of(path: Path) -> tuple[int, int]:
    """The step at which a state was written, and the time: the larger, the newer."""
    try:
        with open_regular(path) as file:
            found = _GLOBAL_STEP.search(file.read(64 * 1024))
        return int(found[1]) if found else -1, path.stat().st_mtime_ns
    except (OSError, RunError):
        return -1, 0


def _claims(path: Path, head: bytes) -> bool:
    return path.name == TRAINER_STATE_FILE or (
        path.suffix == ".json" and f'"{_HISTORY}"'.encode() in head
    )


FORMAT = LogFormat(TRAINER_STATE, 10, _claims, TrainerState)
