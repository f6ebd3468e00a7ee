"""JSON lines: tinker-cookbook, prime-rl, ms-swift, verl's file logger, a W&B export."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.decoding.json_rows import RowDecoder, lists_settings
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.support.files.growing_files import Chunk, Tail
from grpodoctor.support.json_text import loads


class JsonLines:
    """Reads a growing file of JSON lines.

    Args:
        path: the file.
        keys: keys of the step and the time.
    """

    name = "jsonl"
    crash: None = None

    def __init__(self, path: Path, keys: RowKeys) -> None:
        self.path, self._decoder = path, RowDecoder(keys)
        self.config: Mapping[str, Any] = {}
        self._tail: Tail[LogRow] = Tail(path, self._parse, each_line_is_a_row=True)

    def read(self) -> Chunk[LogRow]:
        """Read the rows of the next block."""
        return self._tail.read()

    def was_replaced(self) -> bool:
        """Whether the file was removed, replaced or truncated."""
        return self._tail.was_replaced()

    def rewind(self) -> None:
        """Start over at the first line."""
        self._tail.rewind()

    def _parse(self, line: bytes) -> LogRow:
        data = loads(line)
        if not isinstance(data, dict):
            raise ValueError("not an object")  # noqa: TRY004 - a tail expects ValueError
        settings = data.get("config")
        if isinstance(settings, dict):
            self.config = {**settings, **self.config}
        elif lists_settings(data):
            self.config = {**data, **self.config}
        return self._decoder.row(data)


def _claims(path: Path, head: bytes) -> bool:
    if path.suffix in (".jsonl", ".ndjson"):
        return True
    first = head.lstrip().partition(b"\n")[0]
    try:
        return isinstance(loads(first), dict)
    except ValueError:
        return False


FORMAT = LogFormat("jsonl", 50, _claims, JsonLines)
