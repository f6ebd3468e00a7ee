"""`trainer_state.json` of transformers: the whole history, rewritten at every checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpodoctor.errors import RunError
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.json_rows import RowDecoder
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.files.growing_files import Chunk, Damage
from grpodoctor.support.files.regular_files import open_regular
from grpodoctor.support.json_text import loads

_MAX_BYTES = 64 * 1024 * 1024
"""Largest history that is read: about a hundred thousand steps."""

_HISTORY = "log_history"

_INTERVAL = "save_steps"
"""Steps between two checkpoints, the only setting of the run that the file contains."""

TRAINER_STATE = "trainer_state"
"""Name of the format."""

TRAINER_STATE_FILE = "trainer_state.json"

_GLOBAL_STEP = re.compile(rb'"global_step":\s{0,8}(\d{1,12})')


class TrainerState:
    """Reads a history whose file is replaced as a whole and then starts with the earlier entries.

    Args:
        path: the file.
        keys: keys of the step and the time in an entry.
    """

    name = TRAINER_STATE
    crash: None = None

    @staticmethod
    def history_of(data: object) -> list[object] | None:
        """Return the entries of a parsed file; None if there is no history."""
        history = data.get(_HISTORY) if isinstance(data, dict) else None
        return history if isinstance(history, list) else None

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._keys, self._decoder = path, keys, RowDecoder(keys)
        self.config: Mapping[str, Any] = {}
        self.rewind()

    def rewind(self) -> None:
        """Start over at the first entry."""
        self._signature: tuple[int, int, int] | None = None
        self._read_entries = 0

    def was_replaced(self) -> bool:
        """Whether the file was removed."""
        return self._signature is not None and not self.path.is_file()

    def read(self) -> Chunk[LogRow]:
        """Read the new entries."""
        if not self.path.is_file():
            return Chunk()
        status = self.path.stat()
        signature = (status.st_mtime_ns, status.st_ino, status.st_size)
        if signature == self._signature:
            return Chunk()
        if status.st_size > _MAX_BYTES:
            self._signature = signature
            return Chunk(damage=[Damage(self.path.name, 0, f"larger than {_MAX_BYTES} bytes")])
        with open_regular(self.path) as file:
            text = file.read(min(status.st_size, _MAX_BYTES))
        chunk = self._parse(text)
        self._signature = signature
        return chunk

    def _parse(self, text: bytes) -> Chunk[LogRow]:
        try:
            state = loads(text)
        except ValueError as error:
            # A checkpoint that is being written; the next read finds it complete.
            return Chunk(damage=[Damage(self.path.name, 0, str(error))])
        history = self.history_of(state)
        if history is None:
            return Chunk(damage=[Damage(self.path.name, 0, "it contains no history of steps")])
        self.config = {_INTERVAL: state[_INTERVAL]} if _INTERVAL in state else {}
        chunk = Chunk[LogRow](size=len(text))
        fresh = history[self._read_entries :]
        self._read_entries = max(self._read_entries, len(history))
        for number, entry in enumerate(fresh, start=1):
            if isinstance(entry, dict):
                chunk.records.append(self._decoder.row(entry))
            else:
                chunk.damage.append(Damage(self.path.name, number, "not an object"))
        return chunk


def progress_of(path: Path) -> tuple[int, int]:
    """Return the step and the time at which a state was written; the largest is the newest."""
    try:
        with open_regular(path) as file:
            match = _GLOBAL_STEP.search(file.read(64 * 1024))
        return int(match[1]) if match else -1, path.stat().st_mtime_ns
    except (OSError, RunError):
        return -1, 0


def _claims(path: Path, head: bytes) -> bool:
    return path.name == TRAINER_STATE_FILE or (
        path.suffix == ".json" and f'"{_HISTORY}"'.encode() in head
    )


FORMAT = LogFormat(TRAINER_STATE, 10, _claims, TrainerState)
